"""Units of a worker's options: amounts, numbers and files as they are typed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ledger.errors import UsageError
from ledger.options import OptionUnit, names_of


def amounts(text: str, option: str, default: int | None = None) -> dict[str, int]:
    """Read "name=4,other=1".

    Args:
        text: As it was typed.
        option: For the error.
        default: Of a name without an amount; None = it needs one.

    Raises:
        UsageError: It is something else, or names one twice.

    """
    found: dict[str, int] = {}
    for part in names_of(text):
        name, equals, number = part.rpartition("=") if "=" in part else (part, "", "")
        amount = int(number) if number.isdecimal() else default
        if not name or (equals and not number.isdecimal()) or amount is None:
            raise UsageError(f"{option} {text!r}: expected name=number, with commas between them; {part!r} is not so")
        if name in found:
            raise UsageError(f"{option} {text!r}: {name!r} is named twice")
        found[name] = amount
    return found


def numbers(text: str, option: str) -> tuple[int, ...]:
    """Read "1,2,0".

    Raises:
        UsageError: It is something else.

    """
    try:
        return tuple(int(part) for part in names_of(text))
    except ValueError:
        raise UsageError(f"{option} {text!r}: expected numbers with commas between them, for example 1,0") from None


def amounts_unit(option: str) -> OptionUnit:
    """Return the unit of amounts by name."""

    def tell(found: Mapping[str, int]) -> str:
        return ",".join(f"{name}={amount}" for name, amount in found.items())

    return OptionUnit(str, lambda text: amounts(text, option), tell)


def numbers_unit(option: str) -> OptionUnit:
    """Return the unit of numbers in an order."""

    def tell(found: Sequence[int]) -> str:
        return ",".join(map(str, found))

    return OptionUnit(str, lambda text: numbers(text, option), tell)


def files_unit(option: str) -> OptionUnit:
    """Return the unit of files and folders that are there; all of them together are refused."""

    def read(text: str) -> tuple[str, ...]:
        places = tuple(str(Path(name).absolute()) for name in names_of(text))
        for place in places:
            if place == "/" or not Path(place).exists():
                raise UsageError(f"{option} {place}: expected files and folders that are there, and not all of them")
        return places

    return OptionUnit(str, read, ",".join)
