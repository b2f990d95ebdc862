"""The rules of the code that no linter knows, checked on every file of the tree."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("ledger", "rsm_spark", "broker", "connectors", "rsm_demo")
_FILE_LINES_MAX = 400
_FUNCTION_LINES_MAX = 60
_GENERATED = re.compile(r"_pb2(_grpc)?\.pyi?$")
_BANNED_NAMES = {
    "utils": "what it is about",
    "util": "what it is about",
    "helpers": "what it helps with",
    "common": "what it is about",
    "misc": "what it is about",
    "manager": "what it does",
    "data": "which data",
    "info": "what it tells",
    "tmp": "what it is",
}
# In two halves, so that this file does not name them either.
_FOREIGN_ADDRESSES = tuple(
    first + second
    for first, second in (
        ("py", "pi.org"),
        ("pythonhosted", ".org"),
        ("repo1.ma", "ven.org"),
        ("repo.ma", "ven.apache"),
        ("central.sona", "type"),
        ("registry.npm", "js"),
        ("crates", ".io"),
        ("proxy.gol", "ang.org"),
        ("deb.deb", "ian.org"),
        ("/wo", "rk/"),
        ("/tmp/bo", "ot"),
    )
)


@cache
def _files() -> tuple[PurePosixPath, ...]:
    """Return the files that are in version control or would go there."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=_ROOT, check=True, capture_output=True, text=True).stdout
    names = sorted(set(listed.split("\0")) - {""})
    return tuple(PurePosixPath(name) for name in names if (_ROOT / name).is_file())


def _python_files(*folders: str) -> list[PurePosixPath]:
    """Return hand-written Python files, all or those below these folders."""
    return [
        path
        for path in _files()
        if path.suffix == ".py"
        and not _GENERATED.search(path.name)
        and (not folders or path.parts[0] in folders or path.name.startswith("pyspark_"))
    ]


@cache
def _text(path: PurePosixPath) -> str:
    return (_ROOT / path).read_text(encoding="utf-8")


@cache
def _tree(path: PurePosixPath) -> ast.Module:
    return ast.parse(_text(path), filename=str(path))


def _is_pure(path: PurePosixPath) -> bool:
    return "core" in path.parts[:-1] or path.parts[:2] == ("ledger", "wire")


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the lines from the name to the end, without the docstring."""
    documented = ast.get_docstring(function, clean=False)
    docstring_lines = documented.count("\n") + 1 if documented else 0
    return (function.end_lineno or function.lineno) - function.lineno + 1 - docstring_lines


def _has_behaviour(tree: ast.Module) -> bool:
    """Tell whether a module does anything: declarations alone (messages, protocols) have nothing to test."""
    return any(
        not isinstance(statement, ast.Pass)
        and not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        for function in _functions(tree)
        for statement in function.body
    )


def _exported(tree: ast.Module) -> set[str] | None:
    """Return the names in `__all__`, or None if there is none."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
                return set(ast.literal_eval(node.value))
    return None


def _fail_with(problems: list[str]) -> None:
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


def test_no_file_is_longer_than_four_hundred_lines() -> None:
    counts = {path: _text(path).count("\n") for path in _python_files()}
    _fail_with([f"{path}: {n} lines, at most {_FILE_LINES_MAX}" for path, n in counts.items() if n > _FILE_LINES_MAX])


def test_no_function_is_longer_than_sixty_lines() -> None:
    _fail_with(
        [
            f"{path}:{function.lineno}: {function.name} has {lines} lines, at most {_FUNCTION_LINES_MAX}"
            for path in _python_files()
            for function in _functions(_tree(path))
            if (lines := _body_lines(function)) > _FUNCTION_LINES_MAX
        ]
    )


def test_no_module_has_a_name_that_says_nothing() -> None:
    _fail_with(
        [
            f"{path}: name it by {_BANNED_NAMES[word]}, not {word!r}"
            for path in _python_files()
            for word in (path.stem, path.stem.rpartition("_")[2], path.parent.name)
            if word in _BANNED_NAMES and (word != "data" or path.stem == "data")
        ]
    )


def test_every_module_lists_its_public_names() -> None:
    lacking = [path for path in _python_files(*_PACKAGES) if _exported(_tree(path)) is None]
    _fail_with([f"{path}: no __all__" for path in lacking if _tree(path).body[1:]])


def test_every_public_name_has_a_docstring() -> None:
    problems: list[str] = []
    for path in _python_files(*_PACKAGES):
        tree = _tree(path)
        if ast.get_docstring(tree) is None:
            problems.append(f"{path}: the module has no docstring")
        public = _exported(tree) or set()
        for node in tree.body:
            if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or node.name not in public:
                continue
            members = node.body if isinstance(node, ast.ClassDef) else []
            named = [m for m in members if isinstance(m, ast.FunctionDef | ast.AsyncFunctionDef) and m.name[0] != "_"]
            overloads = {m for m in named if any("overload" in ast.unparse(d) for d in m.decorator_list)}
            overrides = {m for m in named if any("override" in ast.unparse(d) for d in m.decorator_list)}
            setters = {m for m in named if any(".setter" in ast.unparse(d) for d in m.decorator_list)}
            for documented in [node, *(m for m in named if m not in overloads | overrides | setters)]:
                if ast.get_docstring(documented) is None:
                    problems.append(f"{path}:{documented.lineno}: {documented.name} has no docstring")
    _fail_with(problems)


def test_pure_modules_have_no_coroutines() -> None:
    _fail_with(
        [
            f"{path}:{function.lineno}: {function.name} is async; a core decides, a shell waits"
            for path in _python_files(*_PACKAGES)
            if _is_pure(path)
            for function in _functions(_tree(path))
            if isinstance(function, ast.AsyncFunctionDef)
        ]
    )


def test_every_core_module_has_unit_tests_of_its_name() -> None:
    tests = {path.name for path in _files() if path.parts[:2] == ("tests", "unit")}
    _fail_with(
        [
            f"{path}: no tests/unit/**/test_{path.stem}.py"
            for path in _python_files(*_PACKAGES)
            if "core" in path.parts[:-1] and _has_behaviour(_tree(path)) and f"test_{path.stem}.py" not in tests
        ]
    )


def test_every_error_class_is_in_a_tree_of_errors() -> None:
    """A tree is in the docstring of `errors.py`, or of the module where the error is defined."""
    roots = [path for path in _python_files(*_PACKAGES) if path.name == "errors.py" and len(path.parts) == 2]
    trees = {path.parts[0]: ast.get_docstring(_tree(path)) or "" for path in roots}
    _fail_with(
        [
            f"{path}:{node.lineno}: {node.name} is in no tree of errors"
            for path in _python_files(*_PACKAGES)
            for node in _tree(path).body
            if isinstance(node, ast.ClassDef)
            and re.fullmatch(r"[A-Z]\w*Error", node.name)
            and f"`{node.name}" not in trees.get(path.parts[0], "") + (ast.get_docstring(_tree(path)) or "")
        ]
    )


def test_every_note_to_do_carries_a_number() -> None:
    note = re.compile(r"#.*\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b(?!\(#\d+\))")
    _fail_with(
        [
            f"{path}:{number}: {line.strip()}"
            for path in _python_files()
            for number, line in enumerate(_text(path).splitlines(), start=1)
            if note.search(line)
        ]
    )


def test_no_file_names_a_package_registry_or_a_folder_of_one_machine() -> None:
    problems: list[str] = []
    for path in _files():
        content = (_ROOT / path).read_bytes().decode("utf-8", errors="replace").lower()
        problems += [f"{path}: {address}" for address in _FOREIGN_ADDRESSES if address in content]
    _fail_with(problems)
