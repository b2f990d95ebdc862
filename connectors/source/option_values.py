"""Single values of options: text in, a checked value out; an error names the option, its value and what it may be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from connectors.errors import OptionError

_Choice = TypeVar("_Choice", bound=StrEnum)

_SIZE_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_DURATION_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


def parse_count(given: Mapping[str, str], name: str) -> int | None:
    """Read a whole number of at least 1; None if the option is not given.

    Raises:
        OptionError: It is none.

    """
    text = given.get(name)
    if text is None:
        return None
    text = text.strip()
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise OptionError(f"option {name} is {text!r}: it must be a whole number of at least 1")
    return int(text)


def parse_size(given: Mapping[str, str], name: str) -> int | None:
    """Read a number of bytes, in Spark's way: 10m = 10 MiB; None if the option is not given.

    Raises:
        OptionError: It is none, or 0.

    """
    text = given.get(name)
    if text is None:
        return None
    found = re.fullmatch(r"(\d+)\s*([bkmgt]?)(?:i?b)?", text.strip().lower(), re.ASCII)
    size = int(found[1]) * _SIZE_UNITS[found[2]] if found else 0
    if size < 1:
        raise OptionError(f"option {name} is {text.strip()!r}: it must be a size of at least a byte like 64m or 1g")
    return size


def parse_share(given: Mapping[str, str], name: str) -> float | None:
    """Read a share, from 0 to 1; None if the option is not given.

    Raises:
        OptionError: It is none.

    """
    text = given.get(name)
    if text is None:
        return None
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise OptionError(f"option {name} is {text.strip()!r}: it must be a share from 0 to 1")
    return share


def parse_duration(given: Mapping[str, str], name: str, default_s: float) -> float:
    """Read a time, in seconds.

    Raises:
        OptionError: It is none, or has no unit.

    """
    text = given.get(name)
    if text is None:
        return default_s
    found = re.fullmatch(r"(\d+)\s*(ms|s|m|min|h|d)", text.strip().lower(), re.ASCII)
    if found is None:
        raise OptionError(f"option {name} is {text.strip()!r}: it must be a time with its unit like 500ms, 30s or 15m")
    return int(found[1]) * _DURATION_UNITS[found[2]]


def parse_flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Read `true` or `false`.

    Raises:
        OptionError: It is neither.

    """
    text = given.get(name)
    if text is None:
        return default
    word = text.strip().lower()
    if word not in {"true", "false"}:
        raise OptionError(f"option {name} is {text!r}: it may be true or false")
    return word == "true"


def parse_choice(given: Mapping[str, str], name: str, default: _Choice) -> _Choice:
    """Read one of the words of an enumeration.

    Raises:
        OptionError: It is none of them.

    """
    text = given.get(name)
    if text is None:
        return default
    kinds = type(default)
    words = [str(kind) for kind in kinds]
    if text.strip().lower() not in words:
        raise OptionError(f"option {name} is {text!r}: it may be {', '.join(words[:-1])} or {words[-1]}")
    return kinds(text.strip().lower())


def parse_columns(given: Mapping[str, str], name: str) -> tuple[str, ...]:
    """Read names, separated by commas, as they stand; () if the option is not given.

    Raises:
        OptionError: A name is empty or there twice.

    """
    text = given.get(name)
    if text is None:
        return ()
    columns = tuple(part.strip() for part in text.split(","))
    if not all(columns):
        raise OptionError(f"option {name} is {text!r}: write at least one column, and no empty one, like key,revision")
    twice = sorted({column for column in columns if columns.count(column) > 1})
    if twice:
        raise OptionError(f"option {name} names {', '.join(twice)} more than once: name each column once")
    return columns
