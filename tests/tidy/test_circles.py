"""Imports of the product go one way: no circle of files, also none that TYPE_CHECKING hides without a reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("ledger", "rsm_spark", "broker", "connectors", "rsm_demo", "jobs")


def _modules(root: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for package in _PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def _imported(node: ast.AST, modules: dict[str, Path]) -> Iterator[str]:
    """Yield the modules of ours that one import statement names."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in modules)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        for alias in node.names:
            name = f"{node.module}.{alias.name}"
            if name in modules:
                yield name
            elif node.module in modules:
                yield node.module


def _excused(tree: ast.Module, text: str) -> Iterator[ast.AST]:
    """Yield what stands in blocks of TYPE_CHECKING that begin with a comment: the reason."""
    lines = text.splitlines()
    for node in tree.body:
        is_block = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if is_block and lines[node.lineno].strip().startswith("# "):
            yield from ast.walk(node)


def _graph(root: Path) -> dict[str, set[str]]:
    """Return who imports whom; without imports of a neighbour for types only, of which a line says why."""
    modules = _modules(root)
    graph: dict[str, set[str]] = {}
    for name, path in modules.items():
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text, filename=str(path))
        excused = set(_excused(tree, text))
        graph[name] = {
            other
            for node in ast.walk(tree)
            for other in _imported(node, modules)
            if other != name and not (node in excused and modules[other].parent == path.parent)
        }
    return graph


def _circle(root: Path) -> list[str]:
    try:
        TopologicalSorter(_graph(root)).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_circle_of_files() -> None:
    circle = _circle(_ROOT)
    if circle:
        pytest.fail(
            f"a circle of imports, each file imported by the next: {' -> '.join(circle)}. Move what both need into a "
            "file of its own; where two files of one folder are halves of one thing, a comment in the TYPE_CHECKING "
            "block says so",
            pytrace=False,
        )


def _unreasoned(root: Path) -> list[str]:
    """Return the blocks of TYPE_CHECKING that do not say why; packages' `__init__` load what is asked for."""
    found: list[str] = []
    for path in _modules(root).values():
        lines = path.read_text(encoding="utf-8").splitlines()
        if path.name != "__init__.py":
            found += [
                f"{path.relative_to(root)}:{number}"
                for number, line in enumerate(lines, 1)
                if line == "if TYPE_CHECKING:" and not lines[number].strip().startswith("# ")
            ]
    return found


def test_an_import_for_types_only_says_why() -> None:
    found = _unreasoned(_ROOT)
    if found:
        pytest.fail(
            f"imported for types only, without a reason: {', '.join(found)}. Import it as anything else; where a "
            "module must not be loaded, or two files of one folder are halves of one thing, begin the block with a "
            "comment that says so",
            pytrace=False,
        )


@pytest.mark.parametrize("reason", ["", "    # It is heavy.\n"])
def test_a_block_without_a_reason_is_found(tmp_path: Path, reason: str) -> None:
    (tmp_path / "ledger").mkdir()
    (tmp_path / "ledger" / "a.py").write_text(f"if TYPE_CHECKING:\n{reason}    import numpy\n")
    assert _unreasoned(tmp_path) == ([] if reason else ["ledger/a.py:1"])


@pytest.mark.parametrize(
    ("guarded", "is_circle"),
    [
        ("from ledger.b import B", True),
        ("if TYPE_CHECKING:\n    from ledger.b import B", True),
        ("if TYPE_CHECKING:\n    # Two halves of one thing.\n    from ledger.b import B", False),
        ("def f():\n    from ledger.b import B", True),
        ("if TYPE_CHECKING:\n    # Another folder's.\n    from ledger.far.c import C", True),
    ],
)
def test_a_circle_is_found_unless_neighbours_say_why(tmp_path: Path, guarded: str, is_circle: bool) -> None:
    (tmp_path / "ledger" / "far").mkdir(parents=True)
    (tmp_path / "ledger" / "a.py").write_text(f"from typing import TYPE_CHECKING\n{guarded}\n")
    (tmp_path / "ledger" / "b.py").write_text("from ledger.a import A\n")
    (tmp_path / "ledger" / "far" / "c.py").write_text("from ledger import a\n")
    assert bool(_circle(tmp_path)) == is_circle
