"""Options from Structs: a field that is marked is a flag, a key of a file and a variable; nothing else says so again.

    class Limits(msgspec.Struct, frozen=True):
        idle_s: Annotated[float, Option("Close connections that are idle for this time; 0 = never.", ge=0)] = 0.0

Name, type and default are the field's, help and bounds the marker's. A field that is a Struct itself stands for all its
marked fields. `ledger.configuration` makes the parameters of a command from them.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec

_Struct = TypeVar("_Struct", bound=msgspec.Struct)


class OptionUnit(NamedTuple):
    """Unit in which a value is typed where the field holds it in another one.

    Attributes:
        type: What is typed.
        read: Returns the field's value of it; not asked for None of a field that may be None.
        tell: The way back, for defaults and bounds.

    """

    type: Any
    read: Callable[[Any], Any]
    tell: Callable[[Any], Any]


class Option(NamedTuple):
    """Marks a field as an option.

    Attributes:
        help: What it does, in a line.
        name: Of flag, key and variable, as `roll_bytes`; "" = the field's.
        unit: How it is typed; None = as the field holds it.
        ge: Least value, of the field.
        le: Greatest one.
        metavar: What the help writes for the value; None = by its type.
        shown: What the help writes for the default; None = the default.
        variables: Environment variables that say it too, before the one of the process.

    """

    help: str
    name: str = ""
    unit: OptionUnit | None = None
    ge: float | None = None
    le: float | None = None
    metavar: str | None = None
    shown: str | None = None
    variables: tuple[str, ...] = ()


class OptionField(NamedTuple):
    """One option as it is typed.

    Attributes:
        name: Of flag, key and variable.
        type: What is typed.
        default: Without it; `REQUIRED` = it has to be given.
        option: The rest.

    """

    name: str
    type: Any
    default: Any
    option: Option

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """Least and greatest value, as they are typed."""
        return self._told(self.option.ge), self._told(self.option.le)

    def _told(self, bound: float | None) -> float | None:
        if bound is None or self.option.unit is None:
            return bound
        told: float = self.option.unit.tell(bound)
        return int(told) if told == int(told) else told


REQUIRED: Final = msgspec.NODEFAULT


def names_of(text: str) -> tuple[str, ...]:
    """Return the names of a list that is separated by commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


SECONDS: Final = OptionUnit(float, lambda seconds: int(seconds * 1000), lambda milliseconds: milliseconds / 1000)
"""Seconds, of a field in milliseconds."""
MIB: Final = OptionUnit(int, lambda mib: mib << 20, lambda count: count >> 20)
"""MiB, of a field in bytes."""
NOT: Final = OptionUnit(bool, operator.not_, operator.not_)
"""A flag that takes back what is so by default."""
NAMES: Final = OptionUnit(str, names_of, ",".join)
"""Names with commas between them, of a tuple."""


def options_in(kind: type[msgspec.Struct], base: msgspec.Struct | None = None) -> Iterator[OptionField]:
    """Yield the options of a Struct, and of those in it, in the order of the fields.

    Args:
        kind: Some of its fields are marked.
        base: Has the defaults; None = the Struct's own.

    """
    for field in msgspec.structs.fields(kind):
        default = _default(field, base)
        option = _marker(field.type)
        if option is not None:
            yield _typed(field, option, default)
        elif nested := _nested(field.type):
            yield from options_in(nested, default if isinstance(default, nested) else None)


def take_options(kind: type[_Struct], values: dict[str, Any], base: _Struct | None = None) -> _Struct:
    """Make a Struct of what was typed, and take that out of the values.

    Args:
        kind: See `options_in`.
        values: By name of the option.
        base: What its other fields are taken from; None = their own defaults.

    """
    given: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        option = _marker(field.type)
        if option is not None:
            value = values.pop(option.name or field.name)
            is_read = option.unit is not None and not (value is None and _may_be_none(field.type))
            given[field.name] = option.unit.read(value) if option.unit is not None and is_read else value
        elif (nested := _nested(field.type)) and any(True for _ in options_in(nested)):
            default = _default(field, base)
            given[field.name] = take_options(nested, values, default if isinstance(default, nested) else None)
    return kind(**given) if base is None else msgspec.structs.replace(base, **given)


def _typed(field: msgspec.structs.FieldInfo, option: Option, default: Any) -> OptionField:
    typed = get_args(field.type)[0]
    if option.unit is not None:
        is_optional = _may_be_none(field.type)
        typed = option.unit.type | None if is_optional else option.unit.type
        default = default if default is REQUIRED or (default is None and is_optional) else option.unit.tell(default)
    return OptionField(option.name or field.name, typed, default, option)


def _default(field: msgspec.structs.FieldInfo, base: msgspec.Struct | None) -> Any:
    if base is not None:
        return getattr(base, field.name)
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def _marker(kind: Any) -> Option | None:
    return next((one for one in get_args(kind)[1:] if isinstance(one, Option)), None) if _is_annotated(kind) else None


def _is_annotated(kind: Any) -> bool:
    return get_origin(kind) is Annotated


def _nested(kind: Any) -> type[msgspec.Struct] | None:
    """Return the Struct that a field is, or may be."""
    for one in _members(kind):
        if isinstance(one, type) and issubclass(one, msgspec.Struct):
            return one
    return None


def _may_be_none(kind: Any) -> bool:
    return types.NoneType in _members(kind)


def _members(kind: Any) -> tuple[Any, ...]:
    """Return what a field may be: the members of a union, else itself."""
    plain = get_args(kind)[0] if _is_annotated(kind) else kind
    return get_args(plain) if get_origin(plain) in (Union, types.UnionType) else (plain,)
