"""Commands and queries as typed methods: the bytes of a call and of its reply, from the annotations. Pure.

    call     ``[name, {argument: value, …}]``
    reply    ``[value]``, or ``[name of an error, {field: value, …}]``

in MessagePack, or in JSON if the call came as JSON: so any language, and a command line, can call. Arguments are
checked where they arrive, before anything is decided. The types of a value are those that msgspec knows. An error is a
`DomainError` by its name and fields, or "InvalidCommandError" with its message: the call itself is wrong.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import MISSING
from dataclasses import fields as dataclass_fields
from types import GenericAlias
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar, cast, overload

import msgspec

from ledger.decoding import json_decoder, msgpack_decoder
from rsm_spark.errors import DomainError, InvalidCommandError, RsmError

P = ParamSpec("P")
T = TypeVar("T")

DESCRIBE = "?"
"""Query of every service: its calls, as a list of `CallShown`."""

_REFUSED = InvalidCommandError.__name__
_ONE, _TWO = 0x91, 0x92  # Heads of MessagePack's arrays of so many.
_MESSAGE_CHARS_MAX = 600  # Each takes up to six bytes of a reply.
_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""Faults of bytes that somebody sent: no UTF-8, and arrays in arrays without end, too."""
_PLAIN = (int, str, bool, float, bytes)
_HEAD: msgspec.msgpack.Decoder[tuple[str, msgspec.Raw]] = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw])
_JSON_HEAD: msgspec.json.Decoder[tuple[str, msgspec.Raw]] = msgspec.json.Decoder(tuple[str, msgspec.Raw])
_ENCODE = msgspec.msgpack.Encoder().encode
_JSON_ENCODE = msgspec.json.Encoder().encode


class _Nested(Protocol):
    def savepoint(self) -> AbstractContextManager[None]: ...


N = TypeVar("N", bound=_Nested)


class CallShown(msgspec.Struct, frozen=True):
    """A call of a service, for people.

    Attributes:
        name: As it is called: "transfer", or "bank.transfer" of a part.
        is_query: It changes nothing.
        signature: "transfer(source: str, amount: int) -> int".
        doc: First line of its docstring.

    """

    name: str
    is_query: bool
    signature: str
    doc: str


def command(function: Callable[Concatenate[N, P], T]) -> Callable[Concatenate[N, P], T]:
    """Declare a method a command. Called by another command of its service it is part of it: all or nothing.

    What it changes, it changes in tables (`table`). If it raises, nothing of that is logged; a `DomainError` arrives at
    the client as the same class.
    """

    @functools.wraps(function)
    def nested(self: N, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self.savepoint():
            return function(self, *args, **kwargs)

    nested.__dict__["rsm_call"] = TypedCall(function, is_query=False)
    return cast("Callable[Concatenate[N, P], T]", nested)


def query(function: Callable[P, T]) -> Callable[P, T]:
    """Declare a method a query: it reads, and changes nothing."""
    function.__dict__["rsm_call"] = TypedCall(function, is_query=True)
    return function


class _Text(str):
    __slots__ = ()
    __repr__ = str.__str__


def _as_written(annotation: Any) -> Any:
    return _Text(annotation) if isinstance(annotation, str) else annotation


class _Types(NamedTuple):
    arguments: type[msgspec.Struct]
    reply: Any
    names: tuple[str, ...]
    keyword_from: int
    replies: Any
    decoder: msgspec.msgpack.Decoder[Any]


class TypedCall:
    """A command or query, its arguments and its reply.

    Args:
        function: The method.
        is_query: It is a query.

    Attributes:
        name: Of the method.
        function: The method itself.
        is_query: It is a query.

    """

    def __init__(self, function: Callable[..., Any], *, is_query: bool) -> None:
        self.name = function.__name__
        self.function = function
        self.is_query = is_query

    @functools.cached_property
    def hints(self) -> dict[str, Any]:
        """Return the annotations; read late, when all names of the module are there."""
        try:
            return typing.get_type_hints(self.function, include_extras=True)
        except NameError as error:
            at = self.function.__qualname__
            raise TypeError(f"{at}: {error}: the types of a call are those of its module") from error

    @functools.cached_property
    def types(self) -> _Types:
        """Return what the annotations say."""
        at, hints = self.function.__qualname__, self.hints
        parameters = list(inspect.signature(self.function).parameters.values())[1:]
        fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
        for one in parameters:
            if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) or one.name not in hints:
                raise TypeError(f"{at}: argument {one} needs a type, and no stars")
            hint = hints[one.name]
            fields.append((one.name, hint) if one.default is one.empty else (one.name, hint, one.default))
        if "return" not in hints:
            raise TypeError(f"{at}: it needs the type of its reply: -> None if it has none")
        arguments = msgspec.defstruct(self.name, fields, kw_only=True, forbid_unknown_fields=True)
        by_place = [one.kind is not one.KEYWORD_ONLY for one in parameters]
        names = tuple(one.name for one in parameters)
        return _Types(
            arguments,
            hints["return"],
            names,
            by_place.count(True),
            GenericAlias(tuple, hints["return"]),
            msgpack_decoder(arguments),
        )

    @functools.cached_property
    def signature(self) -> str:
        """Return the call in words: "transfer(source: str, amount: int) -> int"."""
        plain = inspect.signature(self.function)
        given = [one.replace(annotation=_as_written(one.annotation)) for one in list(plain.parameters.values())[1:]]
        shown = plain.replace(parameters=given, return_annotation=_as_written(plain.return_annotation))
        return f"{self.name}{shown}"

    # ---- who calls

    def encode(self, path: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """Return a call as bytes.

        Raises:
            InvalidCommandError: An argument is missing, is one too many, or of another type: nothing is sent.

        """
        types = self.types
        if len(args) > types.keyword_from:
            raise InvalidCommandError(f"{self.signature}: takes {types.keyword_from} arguments, not {len(args)}")
        given = dict(zip(types.names, args, strict=False))
        if kwargs:
            twice = given.keys() & kwargs.keys()
            if twice:
                raise InvalidCommandError(f"{self.signature}: argument {min(twice)!r} is there twice")
            given.update(kwargs)
        try:
            sent = _ENCODE(given)
            types.decoder.decode(sent)  # As the leader will.
            return _ENCODE((path, msgspec.Raw(sent)))
        except (*_UNREADABLE, OverflowError, TypeError) as error:
            raise InvalidCommandError(f"{self.signature}: {error}") from None

    def decode_reply(self, reply: bytes) -> Any:
        """Return the value of a reply.

        Raises:
            DomainError: That of the service: its own class, if this process knows it.
            InvalidCommandError: The service refuses the call.
            RsmError: It is no reply of this call.

        """
        try:
            if reply[:1] == bytes((_ONE,)):
                return msgpack_decoder(self.types.replies).decode(reply)[0]
            name, fields = _HEAD.decode(reply)
            if name != _REFUSED:
                error: RsmError = _domain_error(name, bytes(fields), self.function.__module__)
            else:
                said = msgpack_decoder(dict[str, str]).decode(fields)
                error = InvalidCommandError(said.get("message", ""))
        except _UNREADABLE as fault:
            raise RsmError(
                f"the reply to {self.signature} cannot be read: {fault}: has the service another version of it?"
            ) from fault
        raise error

    # ---- who answers

    def called(self, raw: msgspec.Raw, *, is_json: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a call, by place and by name.

        Raises:
            InvalidCommandError: They are not as declared.

        """
        types = self.types
        decoder = json_decoder(types.arguments) if is_json else types.decoder
        try:
            given = decoder.decode(raw)
        except _UNREADABLE as error:
            raise InvalidCommandError(f"{self.signature}: {error}") from None
        values = msgspec.structs.astuple(given)
        if len(values) == types.keyword_from:
            return values, {}
        split = types.keyword_from
        return values[:split], dict(zip(types.names[split:], values[split:], strict=True))

    def encode_reply(self, value: Any, *, is_json: bool) -> bytes:
        """Return a reply as bytes.

        Raises:
            TypeError: It is not of the type that the method declares.

        """
        kind = self.types.reply
        encode = _JSON_ENCODE if is_json else _ENCODE
        try:
            reply = encode((value,))
            if not ((type(value) is kind and kind in _PLAIN) or (value is None and kind is type(None))):
                checked = self.types.replies
                (json_decoder(checked) if is_json else msgpack_decoder(checked)).decode(reply)
        except (*_UNREADABLE, TypeError, OverflowError) as error:
            raise TypeError(
                f"{self.signature}: its reply is {value!r:.100}, which is not of that type: {error}"
            ) from None
        return reply


def call_of(method: Any) -> tuple[TypedCall, str]:
    """Return the call that a method of a service's class is, and its name: `Bank.transfer`, `Shop.bank.transfer`.

    Raises:
        TypeError: It is none.

    """
    call = getattr(method, "rsm_call", None)
    if not isinstance(call, TypedCall):
        raise TypeError(f"{getattr(method, '__qualname__', method)!r} is no command or query of a service's class")
    return call, getattr(method, "rsm_path", call.name)


@overload
def encode_call(method: Callable[Concatenate[N, P], Any], /, *args: P.args, **kwargs: P.kwargs) -> bytes: ...


@overload
def encode_call(method: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> bytes: ...


def encode_call(method: Callable[..., Any], /, *args: Any, **kwargs: Any) -> bytes:
    """Return a call of a service as bytes: ``encode_call(Bank.transfer, "ann", "bob", 5)``.

    Raises:
        InvalidCommandError: An argument is missing, is one too many, or of another type.

    """
    call, path = call_of(method)
    return call.encode(path, args, kwargs)


def is_json_call(payload: bytes) -> bool:
    """Return whether a call is JSON, and so its reply."""
    return payload[:1] != bytes((_TWO,))


def split_call(payload: bytes, *, is_json: bool) -> tuple[str, msgspec.Raw]:
    """Return name and arguments of a call.

    Raises:
        InvalidCommandError: It is no call.

    """
    try:
        return (_JSON_HEAD if is_json else _HEAD).decode(payload)
    except _UNREADABLE as error:
        raise InvalidCommandError(f"this is no call, which is [name, {{argument: value}}]: {error}") from None


def json_value(reply: bytes) -> Any:
    """Return the value of a reply to a call in JSON.

    Raises:
        DomainError: That of the service, by its name.
        InvalidCommandError: The service refuses the call, or has no typed calls.

    """
    try:
        said: list[Any] = json_decoder(list[Any]).decode(reply)
    except _UNREADABLE:
        said = []
    match said:
        case [value]:
            return value
        case [str(name), dict(fields)]:
            raise (
                InvalidCommandError(fields.get("message", ""))
                if name == _REFUSED
                else DomainError.unknown(name, fields)
            )
    raise InvalidCommandError(f"this service has no typed commands: it answers {reply!r:.100}")


def refusal_text(reply: bytes) -> str:
    """Return the error that a reply in MessagePack says, in words; "" = it says none.

    Its fields are those of the service's own error, or the message of what is wrong with the call.
    """
    try:
        name, fields = msgpack_decoder(tuple[str, dict[str, Any]]).decode(reply)
    except _UNREADABLE:
        return ""
    return str(fields.get("message", "")) if name == _REFUSED else str(DomainError.unknown(name, fields))


def encode_error(error: DomainError | InvalidCommandError, *, is_json: bool) -> bytes:
    """Return the reply that says an error."""
    fields = error.error_fields if isinstance(error, DomainError) else {"message": str(error)[:_MESSAGE_CHARS_MAX]}
    return (_JSON_ENCODE if is_json else _ENCODE)((type(error).__name__, fields))


def encode_value(value: Any, *, is_json: bool) -> bytes:
    """Return the reply of a value that needs no check."""
    return (_JSON_ENCODE if is_json else _ENCODE)((value,))


def _domain_error(name: str, fields: bytes, module: str) -> DomainError:
    """Return an error of a service by its name; of several classes the one of the service's module."""
    kinds = list(DomainError.__subclasses__())
    seen: list[type[DomainError]] = []
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        if kind.__name__ == name:
            seen.append(kind)
    seen.sort(key=lambda one: one.__module__ != module)
    for kind in seen:
        shape: type[msgspec.Struct] = _shape(cast("Any", kind))
        try:
            return kind(**msgspec.structs.asdict(msgpack_decoder(shape).decode(fields)))
        except msgspec.MsgspecError:
            continue  # Another version's.
    return DomainError.unknown(name, msgpack_decoder(dict[str, Any]).decode(fields))


@functools.cache
def _shape(kind: Any) -> type[msgspec.Struct]:
    """Return a Struct with the fields of an error: decoders make no exceptions."""
    hints = typing.get_type_hints(kind)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = [
        (one.name, hints[one.name]) if one.default is MISSING else (one.name, hints[one.name], one.default)
        for one in dataclass_fields(kind)
    ]
    return msgspec.defstruct(kind.__name__, fields, kw_only=True)
