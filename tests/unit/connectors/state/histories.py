"""Random histories of a machine with two tables, sessions and verified snapshots, and what a replica makes of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import ClassVar

from connectors.source.decode import HashedBlock
from ledger.core.entry_block import EntryBlock
from rsm_spark.core.digest import digest_bytes
from rsm_spark.core.envelope import Envelope, decode_envelope, encode_envelope, entry_hash
from rsm_spark.core.machine import Decision, Field, FieldType, MachineDescription, Row, TableDescription
from rsm_spark.core.machine import encode_description as described
from rsm_spark.core.records import CommandHead, KernelRecord, Record, encode_records
from rsm_spark.core.state import ReplicatedState
from rsm_spark.core.table_machine import TableMachine, delete, note, upsert

_ORDERS = TableDescription(
    "orders",
    (Field("shop", FieldType.STR), Field("number", FieldType.INT)),
    (Field("price", FieldType.FLOAT), Field("paid", FieldType.BOOL), Field("by", FieldType.BYTES)),
)
_STOCK = TableDescription("stock", (Field("item", FieldType.STR),), (Field("count", FieldType.INT),))


class Shop(TableMachine):
    """Orders and stock."""

    description: ClassVar[MachineDescription] = MachineDescription(
        "shop",
        1,
        (_ORDERS, _STOCK),
        (
            upsert(16, "ordered", _ORDERS),
            delete(17, "cancelled", _ORDERS),
            upsert(18, "counted", _STOCK),
            delete(19, "sold_out", _STOCK),
            note(20, "greeted", Field("text", FieldType.STR)),
        ),
    )

    def decide(self, command: bytes, revision: int, now_ms: int) -> Decision:
        """Decide nothing: histories are made."""
        return Decision([], command)

    def query(self, query: bytes, revision: int) -> bytes:
        """Answer nothing."""
        return query


class Happenings:
    """Makes the records of one entry after the other."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._open: dict[bytes, tuple[int, int]] = {}  # session -> (last sequence, answered up to)
        self._places: set[str] = set()
        self._rows: dict[int, set[tuple[object, ...]]] = {17: set(), 19: set()}

    def entry(self) -> list[Record]:
        """Return the records of the next entry; sometimes none."""
        return [record for _ in range(self._rng.choice((0, 1, 2, 5, 9))) for record in self._some()]

    def _some(self) -> list[Record]:
        rng, draw = self._rng, self._rng.random()
        if draw < 0.08:
            session = bytes([rng.randrange(6)]) * 16
            if session in self._open:
                del self._open[session]
                return [Record(KernelRecord.SESSION_EXPIRED, None, (session,))]
            self._open[session] = (0, 0)
            return [Record(KernelRecord.SESSION_OPENED, None, (session,))]
        if draw < 0.12:
            place = f"replica:{rng.randrange(3)}"
            if place in self._places and rng.random() < 0.5:
                self._places.discard(place)
                return [Record(KernelRecord.SNAPSHOT_WITHDRAWN, None, (place,))]
            self._places.add(place)
            fields = (place, "disk", rng.randrange(99), rng.randbytes(16), rng.randbytes(32), 4, "b")
            return [Record(KernelRecord.SNAPSHOT_VERIFIED, None, fields)]
        changes = [self._change() for _ in range(rng.choice((1, 1, 1, 3)))]
        if self._open and rng.random() < 0.6:
            head = self._head(rng.choice(sorted(self._open)), len(changes))
            if rng.random() < 0.1:
                return [Record(KernelRecord.COMMAND_ANSWERED, CommandHead(*_of(head)[:3], 1, head.reply), ())]
            changes[0] = Record(changes[0].type, head, changes[0].fields)
        return changes

    def _head(self, session: bytes, count: int) -> CommandHead:
        last, answered = self._open[session]
        answered = self._rng.randint(answered, last)
        sequence = max(last, answered) + 1
        self._open[session] = (sequence, answered)
        return CommandHead(session, sequence, answered, count, self._rng.randbytes(3))

    def _change(self) -> Record:
        rng, kind = self._rng, self._rng.choice((16, 16, 16, 17, 18, 18, 19, 20))
        if kind == 20:
            return Record(20, None, ("hello",))
        if kind in {16, 17}:
            key: tuple[object, ...] = (rng.choice("ab"), rng.randrange(8))
            row: tuple[object, ...] = (rng.random(), rng.random() < 0.5, rng.randbytes(4))
        else:
            key, row = (f"item-{rng.randrange(5)}",), (rng.randrange(1000),)
        if kind in {16, 18}:
            self._rows[kind + 1].add(key)
            return Record(kind, None, key + row)
        if key not in self._rows[kind]:
            return Record(20, None, ("nothing to delete",))
        self._rows[kind].discard(key)
        return Record(kind, None, key)


def _of(head: CommandHead) -> tuple[bytes, int, int]:
    return head.session, head.sequence, head.answered_up_to


class Reference:
    """A log of such entries in memory, and a replica's own state after every record, as the service's code has it."""

    def __init__(
        self, seed: int, *, log_id: bytes | None = None, checkpoint_every: int = 7, roll_every: int = 11
    ) -> None:
        self.log_id = log_id or bytes([seed % 256]) * 16
        self.state = ReplicatedState(Shop(), self.log_id)
        self.happenings = Happenings(seed)
        # By revision.
        self.rows: list[frozenset[Row]] = [frozenset()]
        self.sums: list[tuple[str, int]] = [("0" * 32, 0)]
        # (ledger, entry, payload), and by (ledger, entry) the hash after it.
        self.entries: list[tuple[int, int, bytes]] = []
        self.checkpoints: list[int] = []
        self.logged_ms: list[int] = [0]
        self._checkpoint_every, self._roll_every = checkpoint_every, roll_every
        self._ledger, self._next_entry = 100, 0

    def grow(self, entry_count: int) -> None:
        """Append entries; the first one describes the machine, some begin with a checkpoint."""
        for _ in range(entry_count):
            self.append(self.next_records())

    def next_records(self) -> list[Record]:
        """Return what the next entry holds."""
        number = len(self.entries)
        records = self.happenings.entry()
        if number == 0:
            return [Record(KernelRecord.MACHINE_DESCRIBED, None, (described(Shop.description),)), *records]
        if number % self._checkpoint_every == 0:
            self.checkpoints.append(self.state.revision)
            fields = (self.state.revision, digest_bytes(self.state.digest), self.state.row_count)
            return [Record(KernelRecord.CHECKPOINT_LOGGED, None, fields), *records]
        return records

    def append(self, records: Sequence[Record]) -> bytes:
        """Make an entry of these records, and take it; return its payload."""
        state, logged_ms = self.state, 1_000 + 10 * len(self.entries)
        envelope = Envelope(
            self.log_id, 1, state.revision + 1, state.revision, logged_ms, len(records), state.prefix_hash
        )
        payload = encode_envelope(envelope, encode_records(records))
        if self._next_entry == self._roll_every:
            self._ledger, self._next_entry = self._ledger + 1, 0
        self.take(records, (self._ledger, self._next_entry, payload))
        self._next_entry += 1
        return payload

    def take(self, records: Sequence[Record], entry: tuple[int, int, bytes]) -> None:
        """Fold an entry, record by record, so that the states inside it are known too."""
        state, envelope = self.state, decode_envelope(entry[2])
        for record in records:
            state.fold(record.type, record.command, record.fields, envelope.logged_ms)
            self.rows.append(frozenset(state.rows()))
            self.sums.append((f"{state.digest:032x}", state.row_count))
            self.logged_ms.append(envelope.logged_ms)
        state.finish_entry(envelope, entry_hash(entry[2]))
        self.entries.append(entry)

    def blocks(self, begin: int = 0, end: int | None = None) -> list[HashedBlock]:
        """Return entries as tasks read them, one at a time."""
        return [
            HashedBlock(ledger_id, EntryBlock(entry_id, [payload], [0]), [entry_hash(payload)])
            for ledger_id, entry_id, payload in self.entries[begin:end]
        ]
