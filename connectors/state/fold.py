"""A range of a log becomes one change per key: what each record does to the state, from its description alone. Pure.

Written from the formats and not from the service's code, so that the two can contradict each other. Of the tables of
the machine and of the kernel the last record of a key counts; of `_sessions` what `connectors.state.parts` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, groupby
from operator import attrgetter
from typing import NamedTuple

import msgspec

from connectors.source.record_plans import RawRecord, join_all, join_fields
from connectors.state.parts import SessionPart, session_key
from ledger.decoding import msgpack_decoder
from rsm_spark.core.digest import row_term, table_prefix
from rsm_spark.core.envelope import Envelope, body_of
from rsm_spark.core.kernel_tables import KERNEL_RECORDS
from rsm_spark.core.machine import Fold, MachineDescription, RecordDescription, decode_description
from rsm_spark.core.records import MACHINE_TYPE_FIRST, SESSIONS_TABLE, KernelRecord, pack
from rsm_spark.errors import CorruptLogError


class FoldedRow(NamedTuple):
    """Final change of one row by a range of the log.

    Attributes:
        table: Its table.
        key: Canonical bytes of its key.
        revision: Of the record that did it.
        row: Canonical bytes of its other columns; None = it is gone. Of `_sessions`: a part.

    """

    table: str
    key: bytes
    revision: int
    row: bytes | None


class TableChanges(NamedTuple):
    """Changes of one table, as columns of the same length; see `FoldedRow`."""

    table: str
    keys: list[bytes]
    revisions: list[int]
    rows: list[bytes | None]


class _TableFold:
    """Changes of one table, the last of each key.

    Those that later ones undo stay for a while: so no object is made of a change.
    """

    __slots__ = ("_places", "_revisions", "_rows")

    def __init__(self) -> None:
        # By key: place of its last change in the other two.
        self._places: dict[bytes, int] = {}
        self._revisions: list[int] = []
        self._rows: list[bytes | None] = []

    def __len__(self) -> int:
        """Return how many changes are held."""
        return len(self._rows)

    def add(self, keys: Sequence[bytes], rows: Sequence[bytes | None], first_revision: int) -> None:
        """Take in what records that follow each other do."""
        self._places.update(zip(keys, count(len(self._rows)), strict=False))
        self._revisions.extend(range(first_revision, first_revision + len(keys)))
        self._rows.extend(rows)
        if len(self._rows) > 2 * len(self._places) + _UNDONE_MAX:
            revisions, rows = self._last()
            self._places = dict(zip(self._places, count(), strict=False))
            self._revisions, self._rows = revisions, rows

    def _last(self) -> tuple[list[int], list[bytes | None]]:
        """Return revisions and rows of the last changes, in the order of the keys."""
        places = self._places.values()
        if len(places) == len(self._rows):
            return self._revisions, self._rows
        return [self._revisions[place] for place in places], [self._rows[place] for place in places]

    def take(self, table: str) -> TableChanges:
        """Return the changes since the last call."""
        changes = TableChanges(table, list(self._places), *self._last())
        self._places, self._revisions, self._rows = {}, [], []
        return changes


class TableHistory(NamedTuple):
    """All changes of one table in a range, also those that later ones undo.

    Attributes:
        table: The table.
        total: Sum of what each adds to the digest of a history, not reduced; see `change_row`.
        change_count: How many.

    """

    table: str
    total: int
    change_count: int


class LoggedCheckpoint(NamedTuple):
    """Checkpoint of a leader's own state, as it was logged.

    Attributes:
        revision: The state is that right after this record, the last one before the checkpoint's entry.
        digest: Its digest, 16 bytes.
        row_count: Its rows.

    """

    revision: int
    digest: bytes
    row_count: int


_RECORDS = msgspec.msgpack.Decoder(list[RawRecord])
_TYPE = attrgetter("type")
_UNDONE_MAX = 10_000
_CHECKPOINT = msgspec.msgpack.Decoder(tuple[int, bytes, int])
_KERNEL_TYPES = frozenset(int(kind) for kind in KernelRecord)


class _Plan(NamedTuple):
    """Plan of a record's row: its table, and the places of key and row among the record's fields."""

    table: str
    key: tuple[int, ...]
    row: tuple[int, ...] | None


def decode_entry(payload: bytes | memoryview, envelope: Envelope, place: str) -> list[RawRecord]:
    """Return the records of an entry.

    Raises:
        CorruptLogError: They are none, or not as many as the envelope says.

    """
    try:
        records = _RECORDS.decode(body_of(payload))
    except msgspec.MsgspecError as error:
        raise CorruptLogError(f"{place}: no records: {error}") from error
    if len(records) != envelope.record_count:
        raise CorruptLogError(f"{place} holds {len(records)} records, its envelope says {envelope.record_count}")
    return records


class LogFold:
    """Folds entries one after the other.

    Args:
        description: Of the machine, at the first entry; None = a description must come first.
        histories: Tables whose changes are all summed up besides.

    """

    def __init__(self, description: MachineDescription | None, histories: frozenset[str] = frozenset()) -> None:
        self._tables: dict[str, _TableFold] = {}
        # By record type; what is described and changes no row is in `_silent`.
        self._plans: dict[int, _Plan] = {}
        self._silent: frozenset[int] = frozenset()
        self._describe(description)
        self._histories = {table: TableHistory(table, 0, 0) for table in sorted(histories)}
        # Session -> its part, or the revision at which it ended.
        self._sessions: dict[bytes, SessionPart | int] = {}

    def checkpoint(self, records: list[RawRecord]) -> LoggedCheckpoint | None:
        """Return the checkpoint that an entry begins with (behind a description at most), or None."""
        for record in records[:2]:
            if record.type == KernelRecord.CHECKPOINT_LOGGED:
                try:
                    return LoggedCheckpoint(*_CHECKPOINT.decode(join_fields(record.fields)))
                except msgspec.MsgspecError as error:
                    raise CorruptLogError(f"a checkpoint has other fields than it should: {error}") from error
            if record.type != KernelRecord.MACHINE_DESCRIBED:
                break
        return None

    def add(self, records: list[RawRecord], first_revision: int, logged_ms: int) -> None:
        """Fold records that follow those before.

        Raises:
            CorruptLogError: A record is not described.

        """
        revision = first_revision
        for kind, found in groupby(records, _TYPE):
            run = list(found)
            plan = self._plans.get(kind)
            if plan is not None:
                self._change(plan, run, revision)
            elif kind not in self._silent:
                for at, record in enumerate(run, revision):
                    self._add_kernel(record, at, logged_ms)
            self._answer(run, revision, logged_ms)
            revision += len(run)

    def _change(self, plan: _Plan, run: list[RawRecord], first_revision: int) -> None:
        """Fold records of one type that follow each other."""
        table, places, row_places = plan
        keys = join_all(run, places)
        rows: Sequence[bytes | None] = [None] * len(run) if row_places is None else join_all(run, row_places)
        self._tables[table].add(keys, rows, first_revision)
        if table in self._histories:
            prefix = table_prefix(table)
            changes = zip(count(first_revision), keys, rows, strict=False)
            terms = (row_term(prefix, key, change_row(revision, row)) for revision, key, row in changes)
            _, total, change_count = self._histories[table]
            self._histories[table] = TableHistory(table, sum(terms, total), change_count + len(run))

    def take(self) -> list[FoldedRow]:
        """Return the changes since the last call, at most one a key."""
        return [FoldedRow(some.table, *one) for some in self.take_tables() for one in zip(*some[1:], strict=True)]

    def take_tables(self) -> list[TableChanges]:
        """Return the changes since the last call, at most one a key, as columns of each table that has any."""
        found = [rows.take(table) for table, rows in self._tables.items() if len(rows)]
        sessions, self._sessions = self._sessions, {}
        if sessions:
            parts = [
                (part, None) if isinstance(part, int) else (part.revision, part.packed()) for part in sessions.values()
            ]
            found.append(
                TableChanges(SESSIONS_TABLE, list(map(session_key, sessions)), *map(list, zip(*parts, strict=True)))
            )
        return found

    def take_histories(self) -> list[TableHistory]:
        """Return the sums of all changes since the last call, of tables that had any."""
        found = [one for one in self._histories.values() if one.change_count]
        for one in found:
            self._histories[one.table] = TableHistory(one.table, 0, 0)
        return found

    @property
    def change_count(self) -> int:
        """Changes that are held: at least those that `take` would return."""
        return sum(map(len, self._tables.values())) + len(self._sessions)

    def _add_kernel(self, record: RawRecord, revision: int, logged_ms: int) -> None:
        """Fold a record that is no change of a described table."""
        kind = record.type
        if kind == KernelRecord.SESSION_OPENED:
            session = msgpack_decoder(bytes).decode(record.fields[0])
            self._sessions[session] = SessionPart(logged_ms, logged_ms, revision)
        elif kind == KernelRecord.SESSION_EXPIRED:
            self._sessions[msgpack_decoder(bytes).decode(record.fields[0])] = revision
        elif kind == KernelRecord.MACHINE_DESCRIBED:
            self._describe(decode_description(msgpack_decoder(bytes).decode(record.fields[0])))
        elif kind not in _KERNEL_TYPES:
            raise CorruptLogError(
                f"revision {revision} is a record of type {kind}, which nothing describes: "
                + ("the log's machine is not described before it" if kind >= MACHINE_TYPE_FIRST else "upgrade")
            )

    def _answer(self, run: list[RawRecord], first_revision: int, logged_ms: int) -> None:
        """Fold the heads of commands among records that follow each other."""
        heads = [record.command for record in run]
        begin = 0
        for session, found in groupby([None if head is None else head.session for head in heads]):
            end = begin + len(list(found))
            if session is not None:
                part = self._sessions.get(session)
                if part is None:
                    part = self._sessions[session] = SessionPart(None, logged_ms, first_revision + begin)
                if isinstance(part, int):
                    revision = first_revision + begin
                    raise CorruptLogError(f"revision {revision} is of session {session.hex()}, which has ended")
                part.answer([head for head in heads[begin:end] if head], logged_ms, first_revision + end - 1)
            begin = end

    def _describe(self, description: MachineDescription | None) -> None:
        """Fold records as described from here on."""
        records = (*KERNEL_RECORDS, *(description.records if description else ()))
        self._plans = {record.type: _plan(record) for record in records if record.fold != Fold.NONE}
        self._silent = frozenset(
            record.type for record in records if record.type >= MACHINE_TYPE_FIRST and record.fold == Fold.NONE
        )
        for plan in self._plans.values():
            self._tables.setdefault(plan.table, _TableFold())


def change_row(revision: int, row: bytes | None) -> bytes:
    """Return the bytes by which one change counts in the digest of a history, as those of a row do in a state's.

    Args:
        revision: Of the record.
        row: What it made of the row; None = it is gone.

    """
    return pack((revision, str(Fold.DELETE if row is None else Fold.UPSERT), row))


def _plan(record: RecordDescription) -> _Plan:
    at = {field.name: place for place, field in enumerate(record.fields)}
    row = tuple(at[name] for name in record.row) if record.fold == Fold.UPSERT else None
    return _Plan(record.table, tuple(at[name] for name in record.key), row)
