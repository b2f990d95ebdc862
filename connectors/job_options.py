"""Options of a Struct as arguments of a job: `ledger.options` for argparse, which reads spark-submit's scripts."""

from __future__ import annotations

import argparse
import types
from collections.abc import Callable, Collection
from typing import Any, TypeVar, get_args, get_origin

import msgspec

from ledger.options import REQUIRED, OptionField, options_in, take_options

_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def add_options(group: argparse._ArgumentGroup, kind: type[msgspec.Struct], *, without: Collection[str] = ()) -> None:
    """Add the options of a Struct to a group of arguments.

    Args:
        group: Of the job's parser.
        kind: See `options_in`.
        without: Names of options that this job has no use for.

    """
    for field in options_in(kind):
        if field.name in without:
            continue
        flag, default = f"--{field.name.replace('_', '-')}", field.default
        text = field.option.help.replace("%", "%%")
        if field.type is bool:
            group.add_argument(flag, action="store_false" if default else "store_true", help=text)
            continue
        shown = field.option.shown or (default if default not in ("", None, REQUIRED) else "")
        group.add_argument(
            flag,
            type=_reader(field),
            default=None if default is REQUIRED else default,
            required=default is REQUIRED,
            metavar=field.option.metavar,
            help=f"{text} ({shown})" if shown != "" else text,
        )


def options_from(kind: type[_Struct], given: argparse.Namespace) -> _Struct:
    """Return the Struct of what was given; what was left out of the arguments has its default.

    Raises:
        UsageError: A value is none.

    """
    values = {field.name: getattr(given, field.name, field.default) for field in options_in(kind)}
    return take_options(kind, values)


def _reader(field: OptionField) -> Callable[[str], Any]:
    """Return what reads the text of a value and looks at its bounds."""
    kind = field.type
    if get_origin(kind) is types.UnionType:
        kind = next(one for one in get_args(kind) if one is not types.NoneType)
    least, most = field.bounds

    def read(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no {kind.__name__}") from None
        if (least is not None and value < least) or (most is not None and value > most):
            expected = f"{least:g} or more" if most is None else f"{least or 0:g} to {most:g}"
            raise argparse.ArgumentTypeError(f"{text}: expected {expected}")
        return value

    return read
