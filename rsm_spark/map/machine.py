"""The map as a replicated state machine."""

# Longer than 400 lines: deciding, folding, answering and snapshots of one table, which share its rows.

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec

from rsm_spark.core.evolution import check_evolution
from rsm_spark.core.machine import Decision, DeclinedDecision, MachineDescription, Row, RowChange
from rsm_spark.core.records import FORMAT_LEVEL, REPLY_BYTES_MAX, pack
from rsm_spark.errors import CorruptLogError, CorruptSnapshotError, InvalidCommandError, InvalidDescriptionError
from rsm_spark.map.alarms import Alarms
from rsm_spark.map.commands import (
    Branch,
    Branched,
    CompactHistory,
    CompareAndSet,
    Executed,
    Granted,
    GrantLease,
    KeepLease,
    Kept,
    MapCommand,
    MapRefused,
    MapTransaction,
    Mismatched,
    NotFound,
    Put,
    Removed,
    RevokeLease,
    SetAlarm,
    Unfulfilled,
    WriteRows,
    Written,
)
from rsm_spark.map.draft import Draft, operation_fault
from rsm_spark.map.expiries import Expiries
from rsm_spark.map.key_history import KeyHistory
from rsm_spark.map.limits import (
    COMPARES_MAX,
    INTEGER_MAX,
    INTEGER_MIN,
    KEY_BYTES_MAX,
    OPERATIONS_MAX,
    RECORD_COUNT_MAX,
    VALUE_BYTES_MAX,
    key_fault,
    value_fault,
)
from rsm_spark.map.messages import decode_command, decode_query, encode
from rsm_spark.map.nested import branch_fault, decide_branch
from rsm_spark.map.ordered_rows import OrderedRows
from rsm_spark.map.queries import (
    AlarmsShown,
    Count,
    Counted,
    ExpiryShown,
    Found,
    Get,
    Leases,
    LeaseShown,
    ListAlarms,
    ListLeases,
    MapResult,
    Scan,
    ShowExpiry,
    ShowLease,
)
from rsm_spark.map.records import (
    ALARM_ENDED,
    ALARM_RAISED,
    ALARMS_TABLE,
    ALARMS_VERSION,
    COMPACTED,
    COMPACTIONS_TABLE,
    COUNTS_LEVEL,
    COUNTS_VERSION,
    DATES_VERSION,
    DELETED,
    EXPIRED,
    EXPIRIES_TABLE,
    EXPIRY_CLEARED,
    EXPIRY_SET,
    LEASE_ENDED,
    LEASE_KEPT,
    LEASES_TABLE,
    MAP_DESCRIPTION,
    MAP_TABLE,
    PUT,
    said_revision,
)
from rsm_spark.map.row_ring import RowRing
from rsm_spark.map.row_writes import RECORDS_MAX, row_writes_fault, write_rows
from rsm_spark.map.rows import MapEntry, columns_of, entry_of, value_of
from rsm_spark.map.scanning import scan

_LEASES_MAX = 1_000
_ROW_BYTES = 300
"""Memory that a row needs beside its bytes, about."""
_FULL = (
    "the memory of the leader, or of a replica that follows it, is nearly used up: deletes and what makes the map "
    "smaller are taken, but no puts that make it larger (memory-full). Nothing was changed: delete something, or come "
    "again later"
)
_NO_DATES = (
    f"the log is of a version of the map before {DATES_VERSION}, in which the keys of a command have no common mod "
    "revision: raise it (`rsm log raise-version`)"
)
_NO_ALARMS = (
    f"the log is of a version of the map before {ALARMS_VERSION}, which keeps no alarms: raise it (`rsm log "
    "raise-version`)"
)
_NOT_FOUND = encode(NotFound())
_COMPACTION = msgspec.msgpack.Decoder(tuple[int])


class MapMachine:
    """State of the map. Keys have 1 to 4,096 bytes, values up to 1 MiB; refusals are replies, not errors.

    Attributes:
        compacted: Revision below which nobody may ask for the map as it was; 0 = nobody has compacted.
        alarms: Those that are raised.
        history: Is told what changes replace; None = nobody wants to know.

    """

    is_evolving = True
    level_needed = COUNTS_LEVEL
    said_revision = staticmethod(said_revision)

    def __init__(self) -> None:
        self.format_level = FORMAT_LEVEL
        self.is_full = False
        # The log's version of the map has create revisions and versions; its commands have one mod revision each.
        self._counts = self._dates = self._keeps_alarms = True
        self._rows: OrderedRows[MapEntry] = OrderedRows()
        self._expiries = Expiries()
        self.alarms = Alarms()
        self._replaced = RowRing()
        self._compacted_by = 0
        self.compacted = 0
        self.history: KeyHistory | None = None

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self._rows.entries)

    @property
    def description(self) -> MachineDescription:
        return MAP_DESCRIPTION

    def follow(self, description: MachineDescription) -> None:
        """Fold and decide by the description of the log; see `rsm_spark.core.machine.EvolvingMachine`.

        Raises:
            CorruptLogError: It is of a version that cannot follow this one, or be followed by it.

        """
        try:
            older, newer = sorted((description, MAP_DESCRIPTION), key=lambda one: one.version)
            check_evolution(older, newer)
        except InvalidDescriptionError as error:
            raise CorruptLogError(str(error)) from error
        known = {record.type for record in MAP_DESCRIPTION.records}
        if not known.issuperset(record.type for record in description.records):
            raise CorruptLogError(
                f"the log is of version {description.version} of the map, this replica folds it up to version "
                f"{MAP_DESCRIPTION.version}: run the version of rsm-spark that the others run"
            )
        self._counts = description.version >= COUNTS_VERSION
        self._dates = description.version >= DATES_VERSION
        self._keeps_alarms = description.version >= ALARMS_VERSION

    @property
    def live(self) -> OrderedRows[MapEntry]:
        """The rows as they are: on a leader with changes that are not confirmed yet."""
        return self._rows

    def keys_of_lease(self, lease: int) -> Iterable[bytes]:
        """Return the keys that are attached to a lease, as they are now."""
        return self._expiries.keys_of(lease)

    # ---- deciding

    def decide(self, command: bytes, revision: int, now_ms: int) -> Decision:
        """Decide a command: see `rsm_spark.map.messages` for its bytes and its replies."""
        try:
            decoded = decode_command(command)
            if type(decoded) is Put:  # Most commands are, and most keys do not expire: the rest may take its time.
                key, value = decoded.key, decoded.value
                is_sound = 0 < len(key) <= KEY_BYTES_MAX and len(value) <= VALUE_BYTES_MAX
                is_free = not (self.is_full or self.alarms.raised)
                if is_sound and is_free and key not in self._expiries.keys.entries:
                    if not self._counts:
                        return Decision(((PUT, (key, value)),), encode(Written(revision)))
                    found = self._rows.entries.get(key)
                    created, version = (revision, 1) if found is None else (found.create_revision, found.version + 1)
                    fields = (key, value, created, version, None) if self._dates else (key, value, created, version)
                    return Decision(((PUT, fields),), encode(Written(revision)))
            fault = _fault(decoded) or (self.alarms.forbids(decoded) if self.alarms.raised else None)
            if fault:
                return _refused(fault)
            decision = self._decide(decoded, revision, now_ms)
            if self.alarms.raised and (fault := self.alarms.forbids_records(decision.records)):
                return _refused(fault)
            return _refused(_FULL) if self.is_full and self._grows(decision) else decision
        except InvalidCommandError as error:
            return _refused(str(error))

    def _decide(self, command: MapCommand, revision: int, now_ms: int) -> Decision:
        if isinstance(command, CompareAndSet):
            return self._compare_and_set(command, revision, now_ms)
        if isinstance(command, MapTransaction):
            return self._transact(command, revision, now_ms)
        if isinstance(command, Branch):
            return self._branch(command, revision, now_ms)
        if isinstance(command, CompactHistory):
            return self._compact(command.revision, revision)
        if isinstance(command, SetAlarm):
            alarmed = self.alarms.decide(command, revision, now_ms) if self._keeps_alarms else _NO_ALARMS
            return _refused(alarmed) if isinstance(alarmed, str) else alarmed
        if isinstance(command, WriteRows):
            draft = self._draft(revision, now_ms, RECORDS_MAX)
            wrote = write_rows(command, draft)
            return Decision(draft.dated_records(), encode(wrote))
        if isinstance(command, GrantLease):
            return self._grant(command, revision, now_ms)
        if isinstance(command, KeepLease):
            return self._keep(command.lease, now_ms)
        if isinstance(command, RevokeLease):
            return self._revoke(command.lease, revision)
        draft = self._draft(revision, now_ms)
        result = draft.run(command)
        return Decision(draft.dated_records(), encode(draft.dated(result)))

    def _grows(self, decision: Decision) -> bool:
        """Return whether what was decided makes the map larger: a new key or lease, or longer values."""
        more = 0
        for record_type, fields in decision.records:
            if record_type == PUT:
                key, value = fields[:2]
                found = self._rows.entries.get(key)
                more += _ROW_BYTES + len(value) if found is None else len(value) - len(value_of(found.row))
            elif record_type == LEASE_KEPT:
                lease, _, _ = fields
                more += 0 if lease in self._expiries.leases else _ROW_BYTES
            elif record_type == DELETED:
                key = fields[0]
                found = self._rows.entries.get(key)
                more -= 0 if found is None else _ROW_BYTES + len(found.row)
        return more > 0

    def _draft(self, revision: int, now_ms: int, record_count_max: int = RECORD_COUNT_MAX) -> Draft:
        return Draft(
            self._rows,
            self._expiries,
            revision,
            now_ms,
            counts=self._counts,
            dates=self._dates,
            record_count_max=record_count_max,
        )

    def _compare_and_set(self, command: CompareAndSet, revision: int, now_ms: int) -> Decision:
        found = self._rows.entries.get(command.key)
        expected = command.expected
        if found is None:
            matches = expected is None
        elif isinstance(expected, int):
            matches = found.mod_revision == expected
        else:
            matches = expected is not None and value_of(found.row) == expected
        if not matches:
            return Decision((), encode(Mismatched(0 if found is None else found.mod_revision)))
        draft = self._draft(revision, now_ms)
        if command.value is not None:
            draft.put(command.key, command.value)
        elif found is not None:
            draft.delete(command.key)
        else:
            revision = 0
        return Decision(draft.dated_records(), encode(draft.dated(Written(revision))))

    def _transact(self, command: MapTransaction, revision: int, now_ms: int) -> Decision:
        draft = self._draft(revision, now_ms)
        succeeded = all(draft.holds(compare) for compare in command.compares)
        results = [draft.run(operation) for operation in (command.then if succeeded else command.orelse)]
        reply = encode(Executed(succeeded, [draft.dated(result) for result in results]))
        if len(reply) > REPLY_BYTES_MAX:
            return _refused(
                f"the transaction would answer {len(reply)} bytes, a reply has at most {REPLY_BYTES_MAX}: it was not "
                "carried out. Read large values by queries, and compare their mod revisions in the transaction"
            )
        return Decision(draft.dated_records(), reply)

    def _branch(self, command: Branch, revision: int, now_ms: int) -> Decision:
        if not self._dates:
            return _refused(_NO_DATES)
        return decide_branch(command, self._draft(revision, now_ms), revision)

    def _compact(self, wanted: int, revision: int) -> Decision:
        """Record from where on the map may be asked for as it was; what remembers more keeps it to itself."""
        if not self._dates:
            return _refused(_NO_DATES)
        if wanted <= self.compacted or wanted >= revision:
            return Decision((), encode(Unfulfilled("compacted" if wanted < revision else "future", revision)))
        return Decision(((COMPACTED, (0, wanted)),), encode(Branched(revision, revision, [])))

    def _grant(self, command: GrantLease, revision: int, now_ms: int) -> Decision:
        lease, leases = command.lease or revision, self._expiries.leases
        if command.lease and (lease in leases or self._expiries.key_count(lease)):
            return Decision((), encode(Unfulfilled("lease exists", revision)))
        while lease in leases or self._expiries.key_count(lease):
            lease += 1  # A client has chosen this number before it was a revision.
        return Decision(((LEASE_KEPT, (lease, command.ttl_ms, now_ms)),), encode(Granted(lease)))

    def _keep(self, lease: int, now_ms: int) -> Decision:
        found = self._expiries.leases.get(lease)
        if found is None:
            return Decision((), _NOT_FOUND)
        return Decision(((LEASE_KEPT, (lease, found.ttl_ms, now_ms)),), encode(Kept(found.ttl_ms)))

    def _revoke(self, lease: int, revision: int) -> Decision:
        """End a lease. Of very many keys some go with the entries behind: the lease is at its end from here on."""
        if lease not in self._expiries.leases:
            return Decision((), _NOT_FOUND)
        records: list[tuple[int, tuple[Any, ...]]] = [(LEASE_ENDED, (lease,))]
        records += self._expiries.ending(lease, self._rows.entries, RECORD_COUNT_MAX - 1)
        last = revision
        if self._dates:
            last += len(records) - 1
            # An EXPIRY_CLEARED stands behind each of them: none is the last.
            records = [(kind, (*fields, last) if kind == EXPIRED else fields) for kind, fields in records]
        return Decision(records, encode(Removed(self._expiries.key_count(lease), last)))

    # ---- time

    def due(self, now_ms: int, promoted_ms: int, limit: int) -> Sequence[tuple[int, tuple[Any, ...]]]:
        """Return the records that time makes due, oldest first; see `rsm_spark.core.machine.TimedMachine`."""
        if self.alarms.is_corrupt:
            return ()
        return self._expiries.due(now_ms, promoted_ms, self._rows.entries, limit)

    def next_due_ms(self, promoted_ms: int) -> int | None:
        """Return the logged time at which something will be due, or None."""
        return None if self.alarms.is_corrupt else self._expiries.next_due_ms(promoted_ms)

    # ---- folding

    def apply(self, record_type: int, fields: tuple[Any, ...], revision: int) -> RowChange:
        """Fold one record into the map.

        Raises:
            CorruptLogError: It is no record of the map.

        """
        try:
            if record_type == PUT:
                if self._dates:
                    key, value, created, version, modified = fields
                    row = pack((value, created, version, modified))
                elif self._counts:
                    key, value, created, version = fields
                    row, modified = pack((value, created, version)), None
                else:
                    key, value = fields
                    row, created, version, modified = pack((value,)), revision, 1, None
                old = self._rows.put(key, MapEntry(row, revision, created, version, modified or revision))
                self._replaced.note(revision, old)
                if self.history is not None:
                    self.history.note(modified or revision, key, old, self.lease_of(key))
                return RowChange(MAP_TABLE, pack((key,)), None if old is None else old.row, row)
            if record_type in {DELETED, EXPIRED}:
                key, *said = fields
                gone = self._rows.remove(key)
                self._replaced.note(revision, gone)
                if self.history is not None:
                    self.history.note(said[0] if said else revision, key, gone, self.lease_of(key))
                return RowChange(MAP_TABLE, pack((key,)), None if gone is None else gone.row, None)
            if record_type == EXPIRY_SET:
                key, lease, ttl_ms, since_ms = fields
                return self._expiries.set_key(key, lease, ttl_ms, since_ms, revision)
            if record_type == EXPIRY_CLEARED:
                (key,) = fields
                return self._expiries.clear_key(key)
            if record_type == LEASE_KEPT:
                lease, ttl_ms, since_ms = fields
                return self._expiries.keep_lease(lease, ttl_ms, since_ms, revision)
            if record_type == LEASE_ENDED:
                (lease,) = fields
                return self._expiries.end_lease(lease)
            if record_type == ALARM_RAISED:
                kind, member, since_ms = fields
                return self.alarms.raise_alarm(kind, member, since_ms, revision)
            if record_type == ALARM_ENDED:
                kind, member = fields
                return self.alarms.end(kind, member)
            if record_type == COMPACTED:
                keyspace, compacted = fields
                return self._compact_up_to(keyspace, compacted, revision)
        except (TypeError, ValueError) as error:
            raise CorruptLogError(
                f"revision {revision}: record type {record_type} of the map has the fields {fields!r}"
            ) from error
        raise CorruptLogError(
            f"revision {revision}: the map (version {MAP_DESCRIPTION.version}) has no record type {record_type}: "
            "a newer version wrote this log, or it is not a map's"
        )

    def _compact_up_to(self, keyspace: int, compacted: int, revision: int) -> RowChange:
        old, self.compacted, self._compacted_by = self.compacted, compacted, revision
        return RowChange(COMPACTIONS_TABLE, pack((keyspace,)), pack((old,)) if old else None, pack((compacted,)))

    def lease_of(self, key: bytes) -> int:
        """Return the lease of a key, as it is now; 0 = none."""
        expiry = self._expiries.keys.entries.get(key)
        return 0 if expiry is None else expiry.lease

    # ---- answering

    def query(self, query: bytes, revision: int) -> bytes:
        """Answer a query: see `rsm_spark.map.messages`."""
        try:
            decoded = decode_query(query)
        except InvalidCommandError as error:
            return encode(MapRefused(str(error)))
        if isinstance(decoded, Get):
            found = self._rows.entries.get(decoded.key)
            if found is None:
                return _NOT_FOUND
            return encode(Found(*columns_of(found, counts=self._counts)))
        if isinstance(decoded, Scan):
            if decoded.limit < 1:
                return encode(MapRefused(f"a scan's limit is at least 1, this one is {decoded.limit}"))
            return encode(scan(self._rows, decoded, revision, counts=self._counts))
        if isinstance(decoded, Count):
            return encode(Counted(self._rows.count(decoded.start, decoded.end)))
        if isinstance(decoded, ListAlarms):
            return encode(AlarmsShown(self.alarms.shown))
        return encode(self._show(decoded))

    def _show(self, query: ShowLease | ShowExpiry | ListLeases) -> MapResult:
        expiries = self._expiries
        if isinstance(query, ShowLease):
            return self._lease(query.lease) if query.lease in expiries.leases else NotFound()
        if isinstance(query, ListLeases):
            numbers = sorted(number for number in expiries.leases if number > query.after)
            return Leases([self._lease(number) for number in islice(numbers, max(0, min(query.limit, _LEASES_MAX)))])
        if query.key not in self._rows.entries:
            return NotFound()
        expiry = expiries.keys.entries.get(query.key)
        if expiry is None:
            return ExpiryShown(0, 0, 0)
        if not expiry.lease:
            return ExpiryShown(expiry.ttl_ms, expiry.since_ms, 0)
        lease = expiries.leases.get(expiry.lease)
        # Of a lease that has ended the key is on its way out.
        return ExpiryShown(1, 0, expiry.lease) if lease is None else ExpiryShown(*lease[:2], expiry.lease)

    def _lease(self, number: int) -> LeaseShown:
        lease = self._expiries.leases[number]
        return LeaseShown(number, lease.ttl_ms, lease.since_ms, self._expiries.key_count(number))

    def row_before(self, table: str, revision: int) -> Row | None:
        """Return the row that a change of the map has replaced or removed; None = there was none.

        Raises:
            InvalidCommandError: It is another table.
            MissingLogError: The change was too long ago.

        """
        if table != MAP_TABLE:
            raise InvalidCommandError(f"old rows are told of table {MAP_TABLE!r} alone, not of {table!r}")
        found = self._replaced.before(revision)
        return None if found is None else Row(table, b"", found.row, found.revision)

    # ---- snapshots

    def rows(self) -> Iterator[Row]:
        """Iterate over all rows as they are at this call; any thread may consume, however slowly."""
        entries, expiries = self._rows.freeze(), self._expiries.rows()
        compacted, compacted_by, alarms = self.compacted, self._compacted_by, self.alarms.rows()

        def _rows() -> Iterator[Row]:
            for key, entry in entries:
                yield Row(MAP_TABLE, pack((key,)), entry.row, entry.revision)
            yield from expiries
            if compacted:
                yield Row(COMPACTIONS_TABLE, pack((0,)), pack((compacted,)), compacted_by)
            yield from alarms

        return _rows()

    def restore(self, rows: Iterable[Row]) -> None:
        """Replace the state.

        Raises:
            CorruptSnapshotError: A row is none of the map; the state is then empty.

        """
        entries: dict[bytes, MapEntry] = {}
        others: list[Row] = []
        alarms: list[Row] = []
        self._rows.load({})
        self._expiries.restore(())
        self._replaced.clear()
        self.alarms.restore(())
        self.compacted = self._compacted_by = 0
        if self.history is not None:
            self.history.clear()
        try:
            for row in rows:
                if row.table == MAP_TABLE:
                    entries[value_of(row.key)] = entry_of(row.row, row.revision)
                elif row.table in {EXPIRIES_TABLE, LEASES_TABLE}:
                    others.append(row)
                elif row.table == ALARMS_TABLE:
                    alarms.append(row)
                elif row.table == COMPACTIONS_TABLE:
                    (self.compacted,), self._compacted_by = _COMPACTION.decode(row.row), row.revision
                else:
                    raise CorruptSnapshotError(f"snapshot row of table {row.table!r}: the map has no such table")
            self._expiries.restore(others)
            self.alarms.restore(alarms)
        except msgspec.MsgspecError as error:
            raise CorruptSnapshotError(f"the snapshot has a row that the map cannot hold: {error}") from error
        self._rows.load(entries)

    def validate(self) -> None:
        self._rows.validate()
        self._expiries.validate()


def _refused(reason: str) -> Decision:
    return DeclinedDecision((), encode(MapRefused(reason)))


def _fault(command: MapCommand) -> str | None:
    if isinstance(command, CompareAndSet):
        return key_fault(command.key) or (None if command.value is None else value_fault(command.value))
    if isinstance(command, MapTransaction):
        if len(command.compares) > COMPARES_MAX or max(len(command.then), len(command.orelse)) > OPERATIONS_MAX:
            return f"a transaction has at most {COMPARES_MAX} comparisons and {OPERATIONS_MAX} operations on each side"
        for compare in command.compares:
            fault = key_fault(compare.key) or compare.fault
            if fault is not None:
                return fault
        return next((fault for one in command.then + command.orelse if (fault := operation_fault(one))), None)
    if isinstance(command, Branch):
        return branch_fault(command)
    if isinstance(command, WriteRows):
        return row_writes_fault(command)
    if isinstance(command, KeepLease | RevokeLease | CompactHistory):
        return None
    if isinstance(command, SetAlarm):
        return None if INTEGER_MIN <= command.member <= INTEGER_MAX else "a member has a number of 64 bits"
    return operation_fault(command)
