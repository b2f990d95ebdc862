"""Independent answers to one question, compared row by row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

Account = tuple[str, int, int, int]
"""Place of an aircraft, or an airline; flights, cancelled, delay minutes."""

_AIRLINES = 4
"""Place of the airlines in an aircraft's account; one that was damaged has none."""


class RowDifference(msgspec.Struct, frozen=True):
    """A row that is not the same everywhere; None = no such row.

    Attributes:
        row: Tail number, or airline.
        seen: What each source says.

    """

    row: str
    seen: dict[str, Account | None]

    def __str__(self) -> str:
        """Name the row and what each source says."""
        return f"{self.row}: " + ", ".join(f"{source} {account}" for source, account in self.seen.items())


class Answers(msgspec.Struct, frozen=True):
    """Source -> tail number, or airline -> account."""

    by_source: dict[str, dict[str, Account]]

    @classmethod
    def of(cls, sources: Mapping[str, Mapping[str, Any]]) -> Answers:
        """Take rows as they came (lists or tuples) and make them comparable."""
        return cls({name: {tail: _account(row) for tail, row in rows.items()} for name, rows in sources.items()})

    @classmethod
    def by_airline(cls, sources: Mapping[str, Mapping[str, Any]]) -> Answers:
        """Take the accounts of aircraft, and sum up what they say of each airline."""
        return cls.of({name: _airlines(rows.values()) for name, rows in sources.items()})

    def totals(self) -> dict[str, tuple[int, int, int, int]]:
        """Return per source: tail numbers, flights, cancelled, delay minutes."""
        return {
            name: (
                len(rows),
                sum(row[1] for row in rows.values()),
                sum(row[2] for row in rows.values()),
                sum(row[3] for row in rows.values()),
            )
            for name, rows in self.by_source.items()
        }


def compare(answers: Answers) -> list[RowDifference]:
    """Return every row on which the sources differ, in order."""
    tails = sorted({tail for rows in answers.by_source.values() for tail in rows})
    differences = []
    for tail in tails:
        seen = {name: rows.get(tail) for name, rows in answers.by_source.items()}
        if len(set(seen.values())) > 1:
            differences.append(RowDifference(tail, seen))
    return differences


def _account(row: Any) -> Account:
    where, flights, cancelled, delay = row[:4]
    return (str(where), int(flights), int(cancelled), int(delay))


def _airlines(accounts: Iterable[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for account in accounts:
        for airline, counts in (account[_AIRLINES] if len(account) > _AIRLINES else {}).items():
            known = found.setdefault(airline, [airline, 0, 0, 0])
            known[1:] = [sum(pair) for pair in zip(known[1:], counts, strict=True)]
    return found
