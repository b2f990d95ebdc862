from __future__ import annotations

import sys
from pathlib import Path

import pytest

from broker.worker import Registry, load_registry, task
from ledger.errors import UsageError


def module(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, source: str) -> str:
    (folder / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


def test_a_function_runs_its_type_and_the_star_every_other() -> None:
    registry = Registry()

    @registry.task("mail")
    def mail(context: object, payload: bytes) -> None: ...

    assert registry.find("sms") is None

    @registry.task("*")
    def others(context: object, payload: bytes) -> None: ...

    assert registry.find("mail") is mail
    assert registry.find("sms") is others
    assert registry.types == ["*", "mail"]


def test_two_functions_of_one_type_are_refused() -> None:
    registry = Registry()
    registry.add("mail", lambda context, payload: None)
    with pytest.raises(UsageError, match="'mail' has two functions"):
        registry.add("mail", print)
    with pytest.raises(UsageError, match="cannot be called"):
        registry.add("sms", "no function")  # type: ignore[arg-type]


def test_modules_are_loaded_by_their_decorators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "from broker.worker import task\n@task('loaded-mail')\ndef mail(context, payload): return 'sent'\n"
    name = module(tmp_path, monkeypatch, "loaded_tasks", source)
    assert "loaded-mail" in load_registry(name).types
    assert "loaded-mail" in load_registry(name).types  # It is imported already.


def test_an_attribute_is_a_function_for_every_type_or_a_registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (
        "from broker.worker import Registry\nregistry = Registry()\n"
        "@registry.task('a')\ndef a(context, payload): ...\nclass Box:\n    run = staticmethod(a)\n"
    )
    name = module(tmp_path, monkeypatch, "attribute_tasks", source)
    assert load_registry(f"{name}:a").types == ["*"]
    assert load_registry(f"{name}:Box.run").types == ["*"]
    assert load_registry(f"{name}:registry").types == ["a"]
    assert load_registry(f"{name}:registry, {name}:a").types == ["*", "a"]


@pytest.mark.parametrize(
    ("source", "tasks", "why"),
    [
        ("", "nothing_here", "there is no module 'nothing_here' on the path"),
        ("import not_there", "bad_tasks", "needs a module that there is not"),
        ("1 / 0", "bad_tasks", "importing it fails: ZeroDivisionError"),
        ("x = 1", "bad_tasks", "registers no task"),
        ("x = 1", "bad_tasks:y", "has no attribute 'y'"),
        ("x = 1", "bad_tasks:x", "cannot be called"),
    ],
)
def test_what_cannot_be_loaded_is_refused_with_the_reason(
    source: str, tasks: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module(tmp_path, monkeypatch, "bad_tasks", source)
    with pytest.raises(UsageError, match=why):
        load_registry(tasks)


def test_the_decorator_leaves_the_function_as_it_is() -> None:
    @task("left-as-it-is")
    def function(context: object, payload: bytes) -> int:
        return 5

    assert function(None, b"") == 5
