"""Names of fields of log lines: what the code uses, what the table has, and what the document says are the same."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ledger.audit_lines import AuditLine
from ledger.cluster_options import LoggingOptions
from ledger.log_fields import ALWAYS, FIELDS, TRACED
from ledger.options import options_in
from rsm_spark.cli.config import PROCESSES, options_of

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("ledger", "rsm_spark", "broker", "connectors", "rsm_demo", "jobs")
# What tells lines of the audit; its fields are those of `AuditLine`, and those named below.
AUDIT = ROOT / "ledger" / "audit_lines.py"
AUDIT_MORE = {"left_out", "refusals", "log", "revision"}
# Methods and properties that return the fields of a line.
SOURCES = {"log_extra", "_log_extra"}
OF_PYTHON_ALONE = {"zookeeper"}  # Its process is Java's, with a log of its own.


def _dicts(tree: ast.Module) -> Iterator[tuple[int, ast.Dict | None]]:
    """Yield what each `extra=` of a module is, and what its sources return: None = it cannot be told."""
    named: dict[str, list[ast.Dict]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    named.setdefault(target.id, []).append(node.value)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in SOURCES:
            yield from ((one.lineno, one.value) for one in ast.walk(node) if isinstance(one, ast.Return))  # type: ignore[misc]
        if not isinstance(node, ast.Call):
            continue
        for keyword in node.keywords:
            if keyword.arg != "extra":
                continue
            match keyword.value:
                case ast.Attribute(attr=name) | ast.Call(func=ast.Attribute(attr=name)) if name in SOURCES:
                    continue
                case ast.Dict() as found:
                    yield node.lineno, found
                case ast.Name(id=name):
                    yield from ((node.lineno, found) for found in named.get(name, [None]))
                case _:
                    yield node.lineno, None


def _used() -> Iterator[tuple[str, str]]:
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if path == AUDIT or "testing" in path.parts or not re.search(r"\bextra=|\b_?log_extra\b", text):
            continue
        for line, found in _dicts(ast.parse(text)):
            where = f"{path.relative_to(ROOT)}:{line}"
            assert found is not None, f"{where}: the fields of this line are no dictionary that is written there"
            for key in found.keys:
                if key is None:
                    continue  # What another one of them has, `**self.log_extra`.
                assert isinstance(key, ast.Constant), f"{where}: the name of a field is no constant"
                yield where, str(key.value)


def test_each_name_that_the_code_uses_is_in_the_table_and_none_is_for_nothing() -> None:
    used = list(_used())
    assert not [f"{where}: {name}" for where, name in used if name not in FIELDS]
    audit = set(AuditLine.__struct_fields__) | AUDIT_MORE
    assert audit <= set(FIELDS)
    by_the_formatter = {"error", "trace"}
    assert set(FIELDS) == {name for _, name in used} | audit | by_the_formatter


def test_names_are_words_of_the_glossary_without_ids() -> None:
    assert not [name for name in FIELDS if name.endswith("_id") or not re.fullmatch("[a-z]+(_[a-z]+)*", name)]
    assert not set(FIELDS) & set(ALWAYS)
    assert not set(TRACED) & (set(FIELDS) | set(ALWAYS))


def test_the_table_of_the_document_is_the_one_of_the_code() -> None:
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    section = text.split("\n## Logs\n", 1)[1].split("\n## ", 1)[0]
    rows = dict(re.findall(r"^\| `([a-z_]+)` \| (.*) \|$", section, re.MULTILINE))
    assert rows == {**ALWAYS, **FIELDS, **TRACED}


@pytest.mark.parametrize("process", [process for process in PROCESSES if process not in OF_PYTHON_ALONE])
def test_every_process_has_the_options_of_logs(process: str) -> None:
    wanted = {field.name for field in options_in(LoggingOptions)}
    assert wanted <= {option.name for option in options_of(process)}
    assert wanted == {"log_level", "log_format"}


def test_options_of_logs_may_be_said_once_for_all_processes() -> None:
    assert {variable for field in options_in(LoggingOptions) for variable in field.option.variables} == {
        "RSM_LOG_LEVEL",
        "RSM_LOG_FORMAT",
    }
    assert msgspec.structs.fields(LoggingOptions)
