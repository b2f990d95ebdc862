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
_FILE_LINES_UNEXPLAINED = 400
_FILE_LINES_MAX = 700
_WHY_LONG = re.compile(r"^# Longer than 400 lines: \S.{20,}", re.MULTILINE)
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
    return "core" in path.parts[:-1] or path.parts[:2] in {("ledger", "wire"), ("broker", "machine")}


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the lines of what it does: a command with forty options has forty parameters, and may do little."""
    body = function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
    return (function.end_lineno or function.lineno) - body[0].lineno + 1 if body else 0


def _has_behaviour(tree: ast.Module) -> bool:
    """Tell whether a module does anything: declarations alone (messages, protocols) have nothing to test."""
    return any(
        not isinstance(statement, ast.Pass)
        and not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        for function in _functions(tree)
        for statement in function.body
    )


def _fail_with(problems: list[str]) -> None:
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


def test_a_file_holds_one_concept_and_says_why_where_that_is_long() -> None:
    problems = []
    for path in _python_files():
        lines = _text(path).count("\n")
        if lines > _FILE_LINES_MAX:
            problems.append(f"{path}: {lines} lines, at most {_FILE_LINES_MAX}")
        elif lines > _FILE_LINES_UNEXPLAINED and not _WHY_LONG.search(_text(path)):
            problems.append(
                f"{path}: {lines} lines; above {_FILE_LINES_UNEXPLAINED} it says why it is one concept, in a line "
                "'# Longer than 400 lines: …'"
            )
    _fail_with(problems)


def test_no_function_is_longer_than_sixty_lines() -> None:
    _fail_with(
        [
            f"{path}:{function.lineno}: {function.name} has {lines} lines, at most {_FUNCTION_LINES_MAX}"
            for path in _python_files()
            for function in _functions(_tree(path))
            if (lines := _body_lines(function)) > _FUNCTION_LINES_MAX
        ]
    )


def test_a_class_name_means_one_thing() -> None:
    places: dict[str, list[str]] = {}
    for path in _python_files(*_PACKAGES, "jobs"):
        for node in _tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(f"{path}:{node.lineno}")
    _fail_with([f"{name}: {', '.join(found)}" for name, found in sorted(places.items()) if len(found) > 1])


def test_nouns_of_class_names_are_in_the_glossary() -> None:
    text = (_ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    terms, _, plain = text.partition("## Plain words")
    words = " ".join(line.split("|")[1] for line in terms.splitlines() if line.startswith("| ")) + plain
    known = set(re.findall(r"[a-z]+", words.lower()))
    assert len(known) > 100
    _fail_with(
        [
            f"{path}:{node.lineno}: {node.name}: {noun!r} is not in docs/glossary.md; use a word that is, or add it"
            for path in _python_files(*_PACKAGES, "jobs")
            for node in _tree(path).body
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
            if (noun := re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*", node.name)[-1].lower()) not in known
        ]
    )


def test_loggers_have_one_name() -> None:
    pattern = re.compile(r"^(\w+) = logging\.getLogger\(__name__\)", re.MULTILINE)
    _fail_with(
        [
            f"{path}: the module's logger is {name}; call it _LOGGER"
            for path in _python_files(*_PACKAGES, "jobs")
            for name in pattern.findall(_text(path))
            if name != "_LOGGER"
        ]
    )


_QUESTION = re.compile(r"\s*(What|How|Which|Who|Whom|Whose|Whether|Where|When|Why|That)\b")


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    faults = [
        f"{path}:{node.lineno}: {node.value.value.splitlines()[0]}"
        for path in _python_files(
            "ledger", "rsm_spark", "broker", "connectors", "rsm_demo", "jobs", "tools", "examples"
        )
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        and _QUESTION.match(node.value.value)
    ]
    assert faults == [], "say the thing's name first, or what the function returns: these begin with a question word"


def test_no_module_has_a_name_that_says_nothing() -> None:
    _fail_with(
        [
            f"{path}: name it by {_BANNED_NAMES[word]}, not {word!r}"
            for path in _python_files()
            for word in (path.stem, path.stem.rpartition("_")[2], path.parent.name)
            if word in _BANNED_NAMES and (word != "data" or path.stem == "data")
        ]
    )


def test_decoders_are_made_by_one_thread() -> None:
    """msgspec ends the process where two threads look into the same type for the first time: `ledger/decoding.py`."""
    _fail_with(
        [
            f"{path}:{call.lineno}: use ledger.decoding, or make the decoder when the module is imported"
            for path in _python_files("ledger", "rsm_spark", "broker", "connectors", "jobs")
            if path.name != "decoding.py"
            for function in ast.walk(_tree(path))
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
            for call in ast.walk(function)
            if isinstance(call, ast.Call) and _looks_into_a_type(call)
        ]
    )


def _looks_into_a_type(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    if re.fullmatch(r"(msgspec\.)?(json|msgpack)\.decode", name):
        return any(keyword.arg == "type" for keyword in call.keywords)
    return name == "msgspec.convert" or (name.startswith("msgspec.") and name.endswith(".Decoder") and bool(call.args))


def test_names_are_listed_as_public_in_packages_alone() -> None:
    allowed = re.compile(
        r"(^|/)__init__\.py$|^pyspark_|(^|/)(blocking|errors|session|register|messages|views)\.py$|/(store|spark)/"
    )
    _fail_with(
        [
            f"{path}: __all__ says which names of a package are public; this is a module"
            for path in _python_files(*_PACKAGES)
            if re.search(r"^__all__", _text(path), re.MULTILINE) and not allowed.search(str(path))
        ]
    )


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
            if (_is_pure(path) and path.parts[1] != "wire")
            and _has_behaviour(_tree(path))
            and f"test_{path.stem}.py" not in tests
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
