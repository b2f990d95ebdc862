"""`rsm generate-client`: the clients of a service with typed commands as Python, for type checkers and completion."""

from __future__ import annotations

import enum
import inspect
import types
import typing
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from ledger.configuration import options_command
from ledger.errors import UsageError
from rsm_spark.cli.named_machine import ModulePath, load_machine
from rsm_spark.client.service_client import ServiceClient
from rsm_spark.core.typed_calls import TypedCall
from rsm_spark.core.typed_service import Service

_WIDTH = 120
_PLAIN = (bool, int, float, str, bytes, type(None))


@options_command
def generate_client(
    machine: Annotated[
        str,
        typer.Argument(help="Your service, a class with typed commands.", metavar="MODULE:CLASS"),
    ],
    module_path: ModulePath = None,
) -> None:
    """Print a module with two clients of a service: for asyncio, and one that blocks. Each command is a typed method.

    Examples:
        rsm generate-client bank:Bank > bank_client.py

    """
    service = load_machine(machine, module_path)
    if not isinstance(service, Service):
        raise UsageError(f"MODULE:CLASS {machine}: it has no typed commands, it is no rsm_spark.Service")
    typer.echo(client_text(machine, service), nl=False)


def client_text(name: str, service: Service) -> str:
    """Return the module with the clients of a service.

    Args:
        name: "module:Class", as it is imported.
        service: The service.

    Raises:
        UsageError: A command has the name of a method of every client, or a type or default that cannot be written.

    """
    writer = _ClientWriter(name)
    calls = sorted(service.typed_calls().items())
    plain = [line for path, call in calls for line in writer.method(path, call, is_async=True)]
    blocking = [line for path, call in calls for line in writer.method(path, call, is_async=False)]
    title = name.rpartition(":")[2].rpartition(".")[2]
    lines = [
        f'"""Clients of the service {name}.',
        "",
        f"Written by `rsm generate-client {name}`: write it anew when the service changes.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        *writer.imports(),
        "",
        "from rsm_spark.client.blocking import BlockingServiceClient",
        "from rsm_spark.client.service_client import ServiceClient",
        "",
        *([f"_PARTS: _typing.Any = {writer.service}", ""] * any("." in path for path, _ in calls)),
        "",
        f"class {title}Client(ServiceClient):",
        f'    """Client for asyncio: `async with await {title}Client.connect(log) as client`."""',
        *plain,
        "",
        "",
        f"class Blocking{title}Client(BlockingServiceClient):",
        f'    """The same for code that blocks: `with Blocking{title}Client.connect(log) as client`."""',
        *blocking,
    ]
    return "\n".join(lines) + "\n"


class _ClientWriter:
    """Writes methods, and knows what they need imported.

    Args:
        name: "module:Class" of the service.

    Attributes:
        service: The class, as the module that is written names it.

    """

    def __init__(self, name: str) -> None:
        module, _, attribute = name.partition(":")
        self._modules: set[str] = set()
        self.service = f"{self._module(module)}.{attribute}"

    def imports(self) -> list[str]:
        # By other names: an argument may be called as a module is.
        return [f"import {one} as {_alias(one)}" for one in sorted(self._modules)]

    def method(self, path: str, call: TypedCall, *, is_async: bool) -> Iterator[str]:
        name = path.replace(".", "_")
        if hasattr(ServiceClient, name):
            raise UsageError(f"command {path!r}: every client has a method {name!r}: rename the command")
        hints, plain = call.hints, list(inspect.signature(call.function).parameters.values())[1:]
        parameters, given = ["self"], []
        for one in plain:
            if one.kind is one.KEYWORD_ONLY and "*" not in parameters:
                parameters.append("*")
            default = "" if one.default is one.empty else f" = {self._default(path, one.default)}"
            parameters.append(f"{one.name}: {self._type(path, hints[one.name])}{default}")
            given.append(f"{one.name}={one.name}" if one.kind is one.KEYWORD_ONLY else one.name)
        reply = self._type(path, hints["return"])
        source = f"_PARTS.{path}" if "." in path else f"{self.service}.{path}"
        self._modules |= {"typing"} if "." in path else set()
        yield ""
        yield from _wrapped(f"    {'async ' * is_async}def {name}(", parameters, f") -> {reply}:")
        doc = (inspect.getdoc(call.function) or f"Call {path}.").partition("\n")[0]
        yield f"        {_docstring(doc)}"
        asked = f"{'await ' * is_async}self.call("
        if reply == "None":
            yield from _wrapped(f"        {asked}", [source, *given], ")")
        elif "." in path:  # Of a part: a checker need not know the type of a composition.
            yield from _wrapped(f"        _reply: {reply} = {asked}", [source, *given], ")")
            yield "        return _reply"
        else:
            yield from _wrapped(f"        return {asked}", [source, *given], ")")

    def _module(self, name: str) -> str:
        self._modules.add(name)
        return _alias(name)

    def _type(self, path: str, hint: Any) -> str:
        """Return a type as it is written; what `Annotated` says more is checked by the service's class."""
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if hint is None or hint is type(None):
            return "None"
        if hint is Any:
            return f"{self._module('typing')}.Any"
        if origin is Annotated:
            return self._type(path, args[0])
        if origin in (typing.Union, types.UnionType):
            return " | ".join(self._type(path, one) for one in args)
        if origin is typing.Literal:
            return f"{self._module('typing')}.Literal[{', '.join(self._default(path, one) for one in args)}]"
        if origin is not None:
            inner = ", ".join("..." if one is ... else self._type(path, one) for one in args)
            return f"{self._type(path, origin)}[{inner}]"
        if isinstance(hint, type) and "<" not in hint.__qualname__:
            return (
                hint.__name__
                if hint.__module__ == "builtins"
                else f"{self._module(hint.__module__)}.{hint.__qualname__}"
            )
        raise UsageError(f"command {path!r}: type {hint} cannot be written into another module")

    def _default(self, path: str, value: Any) -> str:
        if isinstance(value, enum.Enum):
            return f"{self._type(path, type(value))}.{value.name}"
        if type(value) in _PLAIN:
            return repr(value)
        raise UsageError(f"command {path!r}: default {value!r} cannot be written into another module: use None")


def _alias(module: str) -> str:
    return "_" + module.replace(".", "_")


def _docstring(text: str) -> str:
    return '"""' + text.replace("\\", "\\\\").replace('"""', "'''").removesuffix('"') + '"""'


def _wrapped(head: str, items: list[str], tail: str) -> Iterator[str]:
    line = f"{head}{', '.join(items)}{tail}"
    if len(line) <= _WIDTH:
        yield line
        return
    indent = " " * (len(head) - len(head.lstrip()))
    yield head
    yield from (f"{indent}    {item}," for item in items)
    yield f"{indent}{tail}"
