"""The user's functions by task type.

    from broker.worker import TaskContext, task

    @task("resize")
    def resize(context: TaskContext, payload: bytes) -> bytes:
        ...

`rsm worker run --tasks package.module` imports the module and takes what it has registered; `--tasks module:attribute`
takes a function (for every type), or a `Registry`, of that name.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any, TypeVar

from broker.worker.context import TaskContext
from ledger.errors import UsageError

TaskFunction = Callable[[TaskContext, bytes], "bytes | str | Awaitable[bytes | str | None] | None"]
"""Function that runs a task, called with context and payload. A coroutine function needs the asyncio executor."""

ANY_TYPE = "*"
"""Stands for every type that has no function of its own."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Registry:
    """Functions by task type."""

    def __init__(self) -> None:
        self._functions: dict[str, TaskFunction] = {}

    def task(self, task_type: str) -> Callable[[_Function], _Function]:
        """Return a decorator that has a function run the tasks of a type; "*" = of every other type.

        Raises:
            UsageError: When it decorates: another function runs this type already.

        """

        def register(function: _Function) -> _Function:
            self.add(task_type, function)
            return function

        return register

    def add(self, task_type: str, function: TaskFunction) -> None:
        """Have a function run the tasks of a type.

        Raises:
            UsageError: Another one does already, or it is no function.

        """
        if not callable(function):
            raise UsageError(f"task type {task_type!r}: {function!r} cannot be called")
        present = self._functions.get(task_type)
        if present is not None and present is not function and not _is_same(present, function):
            raise UsageError(f"task type {task_type!r} has two functions: {_name(present)} and {_name(function)}")
        self._functions[task_type] = function

    def find(self, task_type: str) -> TaskFunction | None:
        """Return what runs tasks of a type; None if nothing does."""
        return self._functions.get(task_type) or self._functions.get(ANY_TYPE)

    @property
    def types(self) -> list[str]:
        """Types with a function of their own, sorted; "*" among them if there is one for every other type."""
        return sorted(self._functions)

    def copy(self) -> Registry:
        """Return a registry with the same functions."""
        copied = Registry()
        copied._functions.update(self._functions)
        return copied


_default = Registry()


def task(task_type: str) -> Callable[[_Function], _Function]:
    """Return a decorator that has a function run the tasks of a type, in every worker that imports its module.

    Args:
        task_type: "*" = every type that has no function of its own.

    """
    return _default.task(task_type)


def load_registry(tasks: str) -> Registry:
    """Return the functions that `--tasks` names: of the module, or of the attribute behind the colon.

    Args:
        tasks: "package.module", or "package.module:attribute"; several with commas between them.

    Raises:
        UsageError: There is no such module or attribute, importing it fails, or it registers nothing.

    """
    found = Registry()
    for one in tasks.split(","):
        module_name, _, attribute = one.strip().partition(":")
        before = set(_default.types)
        module = _imported(module_name, one)
        if attribute:
            _take(found, _attribute(module, attribute, one))
            continue
        if not set(_default.types) - before and not any(
            _is_of(function, module_name) for function in _default._functions.values()
        ):
            raise UsageError(
                f'--tasks {one}: the module registers no task. Decorate functions with @task("type"), or name one: '
                f"{module_name}:function"
            )
        found._functions.update(_default._functions)
    return found


def _imported(module_name: str, tasks: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise UsageError(f"--tasks {tasks}: there is no module {error.name!r} on the path") from error
        raise UsageError(f"--tasks {tasks}: it needs a module that there is not: {error}") from error
    except Exception as error:
        raise UsageError(f"--tasks {tasks}: importing it fails: {type(error).__name__}: {error}") from error


def _attribute(module: ModuleType, attribute: str, tasks: str) -> Any:
    value: Any = module
    for name in attribute.split("."):
        try:
            value = getattr(value, name)
        except AttributeError:
            raise UsageError(f"--tasks {tasks}: {module.__name__} has no attribute {attribute!r}") from None
    return value


def _take(found: Registry, value: Any) -> None:
    if isinstance(value, Registry):
        found._functions.update(value._functions)
    else:
        found.add(ANY_TYPE, value)


def _is_of(function: TaskFunction, module_name: str) -> bool:
    return getattr(function, "__module__", None) == module_name


def _is_same(one: TaskFunction, other: TaskFunction) -> bool:
    """Return whether a module was imported again: the same function, made anew."""
    return _name(one) == _name(other)


def _name(function: TaskFunction) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', function)}"
