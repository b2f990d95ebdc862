"""Several Delta tables that follow one log together: each has its own position, all are fed by one stream."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import msgspec
import pyarrow as pa

from connectors.delta.fold import BatchEnd, RecordRange
from connectors.delta.follower import AppliedToTable, FollowerTable
from connectors.delta.position import TablePosition
from connectors.errors import DeltaSinkError
from rsm_spark.core.digest import digest_bytes
from rsm_spark.core.machine import MachineDescription, TableDescription

_THREADS_MAX = 4
_Place = TypeVar("_Place")
_Outcome = TypeVar("_Outcome")


class AppliedRange(NamedTuple):
    """Outcome of one range of records over all tables.

    Attributes:
        end: Its last record.
        records: Records in it.
        applied: By table.

    """

    end: BatchEnd
    records: int
    applied: dict[str, AppliedToTable]


class FollowerSet:
    """The followers of one log.

    Args:
        make: Makes the follower of a table; None = the table is not wanted.

    """

    def __init__(self, make: Callable[[TableDescription], FollowerTable | None]) -> None:
        self._make = make
        self._tables: dict[str, FollowerTable] = {}
        self._positions: dict[str, TablePosition] = {}
        # End of the last range; tables that appear later begin there.
        self._end: BatchEnd | None = None

    def __iter__(self) -> Iterator[FollowerTable]:
        """Iterate over the followers, by name of their tables."""
        return iter([self._tables[name] for name in sorted(self._tables)])

    def __len__(self) -> int:
        return len(self._tables)

    @property
    def next_revision(self) -> int:
        """The first record that one of the tables lacks."""
        return min((position.revision for position in self._positions.values()), default=0) + 1

    def add(self, follower: FollowerTable) -> TablePosition:
        """Add a table; it is created if it is not there.

        Raises:
            ForeignTableError, DeltaSinkError: See `FollowerTable.open`.

        """
        position = follower.open(self._begin(follower))
        self._tables[follower.name] = follower
        self._positions[follower.name] = position
        return position

    def _begin(self, follower: FollowerTable) -> TablePosition | None:
        if self._end is None:
            return None
        return msgspec.structs.replace(
            follower.empty_position(),
            revision=self._end.revision,
            ledger=self._end.ledger_id,
            entry=self._end.entry_id,
            prefix_hash=self._end.prefix_hash.hex(),
            digest=digest_bytes(0).hex(),
        )

    def apply(self, records: pa.Table) -> AppliedRange:
        """Apply a range of the log to all tables.

        Tables that are described in it are made before any other commits it: a run that is broken off in between finds
        the description again.

        Args:
            records: See `FollowerTable.apply`.

        Raises:
            ConnectorError: One of the tables cannot go on; the others have applied the range.

        """
        span = RecordRange(records)
        for _, machine in span.descriptions:
            for table in machine.tables:
                if table.name not in self._tables:
                    follower = self._make(table)
                    if follower is not None:
                        self.add(follower)
        applied = dict(zip(self._tables, self._each(lambda table: table.apply(span)), strict=True))
        for name, one in applied.items():
            self._positions[name] = one.position
        self._end = span.end
        return AppliedRange(span.end, len(span), applied)

    def flush(self, *, only_due: bool = False) -> tuple[TablePosition, ...]:
        """Commit positions that are held back; return where the tables stand, by name.

        Args:
            only_due: See `FollowerTable.flush`.

        """
        for name, position in zip(self._tables, self._each(lambda one: one.flush(only_due=only_due)), strict=True):
            if position is not None:
                self._positions[name] = position
        return tuple(self._positions[name] for name in sorted(self._positions))

    def _each(self, work: Callable[[FollowerTable], _Outcome]) -> list[_Outcome]:
        return each(list(self._tables.values()), work)


def each(places: Sequence[_Place], work: Callable[[_Place], _Outcome]) -> list[_Outcome]:
    """Work on several at a time (`deltalake` lets the interpreter go), then raise the first error."""
    if len(places) == 1:
        return [work(places[0])]
    with concurrent.futures.ThreadPoolExecutor(min(_THREADS_MAX, max(1, len(places)))) as pool:
        waiting = [pool.submit(work, place) for place in places]
    return [one.result() for one in waiting]


def wanted_table(machine: MachineDescription, name: str) -> str:
    """Return the name of the table that is meant: "" means the only one, or the one of the machine's name.

    Raises:
        DeltaSinkError: There is no such table, or none is meant alone.

    """
    known: Sequence[str] = [table.name for table in machine.tables]
    if name and name not in known:
        raise DeltaSinkError(f"machine {machine.name} has no table {name}: it has {', '.join(known) or 'none'}")
    if name:
        return name
    if machine.name in known:
        return machine.name
    if len(known) == 1:
        return known[0]
    raise DeltaSinkError(
        f"machine {machine.name} has the tables {', '.join(known) or '(none)'}: say which by --machine-table, or take "
        "them all by --tables"
    )
