"""Calls of functions as tasks: a name and arguments as msgpack, never pickle.

What travels is "module:function" and arguments that msgpack knows: None, bool, int, float, str, bytes, lists, dicts (a
tuple arrives as a list). The worker imports the function from its own code, or from the code pool that the task names,
and only from modules that it was told of:

    from broker.client.functions import function_runner
    from broker.worker import task

    task("function")(function_runner("shop.jobs", "shop.reports"))
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import msgspec

from ledger.errors import UsageError

FUNCTION_TYPE = "function"
"""Task type of calls, unless the caller says otherwise."""


class _Call(msgspec.Struct, frozen=True, array_like=True):
    function: str
    arguments: list[Any]
    named: dict[str, Any] = {}


_CALLS = msgspec.msgpack.Decoder(_Call)


def name_of(function: Callable[..., Any]) -> str:
    """Return the name by which a worker finds a function.

    Raises:
        UsageError: It has none elsewhere: a lambda, one inside another function, one of the main program.

    """
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None)
    if not module or not name or "<" in name:
        raise UsageError(f"{function!r} cannot be called elsewhere: it has no name at the top of a module")
    if module == "__main__":
        raise UsageError(f"function {name} of the main program cannot be called elsewhere: move it into a module")
    return f"{module}:{name}"


def encode_call(function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> bytes:
    """Return the payload of a call.

    Raises:
        UsageError: An argument is nothing that msgpack knows, or the function cannot be named.

    """
    name = name_of(function)
    try:
        return msgspec.msgpack.encode(_Call(name, list(arguments), named))
    except (TypeError, OverflowError) as error:
        raise UsageError(f"{name}: its arguments cannot travel: {error}") from None


def decode_result(result: bytes) -> Any:
    """Return what the function returned."""
    return msgspec.msgpack.decode(result) if result else None


def function_runner(*modules: str) -> Callable[[Any, bytes], bytes]:
    """Return what runs calls in a worker.

    Args:
        modules: Whose functions may be called, those of their submodules not among them.

    Raises:
        UsageError: None is named.

    """
    if not modules:
        raise UsageError("function_runner: name the modules whose functions may be called")
    allowed = frozenset(modules)

    def run(_context: Any, payload: bytes) -> bytes:
        call = _CALLS.decode(payload)
        module, _, name = call.function.partition(":")
        if module not in allowed:
            raise UsageError(f"{call.function}: this worker calls functions of {', '.join(sorted(allowed))} only")
        target: Any = importlib.import_module(module)
        for part in name.split("."):
            if part.startswith("_"):
                raise UsageError(f"{call.function}: private names are not called")
            target = getattr(target, part)
        if getattr(target, "__module__", None) != module or not callable(target):
            raise UsageError(f"{call.function}: {module} only imports it, or it is no function")
        return msgspec.msgpack.encode(target(*call.arguments, **call.named))

    return run
