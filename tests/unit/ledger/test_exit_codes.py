"""Exit codes: each class of the table is there, and a command that ends in it ends with its code."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from ledger import errors as ledger_errors
from ledger.exit_codes import CODES, ExitCode, exit_code
from rsm_spark import errors
from rsm_spark.cli import main as cli

_OPERATIONS = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()


def _class(name: str) -> type[BaseException]:
    module, _, attribute = name.rpartition(".")
    kind = getattr(import_module(module), attribute)
    assert issubclass(kind, ledger_errors.LedgerError | errors.RsmError), name
    return kind  # type: ignore[no-any-return]


def _ended(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> Any:
    """Run a command that ends in an error; return the exit code."""

    def command() -> None:
        raise error

    monkeypatch.setitem(cli._SUMMARIES, "try", "Only in this test.")
    monkeypatch.setattr(cli, "entry_points", lambda *, group: [EntryPoint("try", "nowhere:command", group)])
    monkeypatch.setattr(EntryPoint, "load", lambda _: command)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["try"])
    return stopped.value.code


@pytest.mark.parametrize(("name", "code"), CODES.items())
def test_a_command_that_ends_in_an_error_of_the_table_ends_with_its_code(
    name: str, code: ExitCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = _class(name)
    error = kind.__new__(kind)
    Exception.__init__(error, "what was seen")
    below: Any = type("BelowError", (kind,), {})
    assert exit_code(below.__new__(below)) == code, "a class below one of the table has its code"
    assert _ended(monkeypatch, error) == code
    assert _ended(monkeypatch, ExceptionGroup("tasks", [error])) == code  # type: ignore[type-var]


def test_the_nearest_class_decides_and_what_is_in_no_table_is_1() -> None:
    assert issubclass(errors.AccessDeniedError, errors.ConnectionLostError)
    assert exit_code(errors.AccessDeniedError("no")) is ExitCode.REFUSED
    assert issubclass(ledger_errors.WrongPasswordError, ledger_errors.UsageError)
    assert exit_code(ledger_errors.WrongPasswordError("no")) is ExitCode.REFUSED
    assert exit_code(ledger_errors.QuorumLostError("no")) is ExitCode.UNAVAILABLE
    assert exit_code(errors.CorruptLogError("no")) is ExitCode.OTHER

    class NoSuchLogError(errors.DomainError):
        """A service's own error, whatever its name, is none of ours."""

    assert exit_code(NoSuchLogError()) is ExitCode.OTHER
    assert exit_code(FileNotFoundError(2, "none", "file")) is ExitCode.OTHER


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["log", "list", "--metadata-uri", "etcd://here"], ExitCode.USAGE),
        (["log", "list", "--metadata-uri", "zk+hierarchical://127.0.0.1:1/ledgers"], ExitCode.UNAVAILABLE),
        (["ledger", "list", "--metadata-uri", "zk+hierarchical://127.0.0.1:1/ledgers"], ExitCode.UNAVAILABLE),
        (["task", "get", "1", "--url", "http://127.0.0.1:1", "--timeout", "0.1"], ExitCode.UNAVAILABLE),
        (["up", "--data-dir", "PLACE", "--zookeeper", "127.0.0.1:1"], ExitCode.UNAVAILABLE),
        (["down", "--data-dir", "PLACE"], ExitCode.NOT_FOUND),
        (["ps", "--data-dir", "PLACE"], ExitCode.NOT_FOUND),
        (["backup", "restore", "orders", "--as", "again", "--place", "PLACE"], ExitCode.NOT_FOUND),
    ],
)
def test_commands_as_they_are_typed(words: list[str], code: ExitCode, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main([str(tmp_path) if word == "PLACE" else word for word in words])
    assert stopped.value.code == code


def test_the_table_of_the_documentation_has_every_code() -> None:
    section = _OPERATIONS.partition("## Exit codes")[2].partition("\n## ")[0]
    told = {int(code) for code in re.findall(r"^\| (\d) \|", section, re.MULTILINE)}
    assert told == {0, *ExitCode}
