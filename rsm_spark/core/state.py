"""The replicated state: what every replica that has applied the same entries has in the same form.

1. An entry is applied whole or not at all: it must name this log, this revision and this prefix hash.
2. Leader and follower fold records by the same code; the leader only composes the entry around it.
3. The digest counts a row once per `settle`, however often it changed meanwhile.
"""

# Longer than 400 lines: rows of the machine and tables of the kernel change together, under one digest and one place.

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from rsm_spark.core.chain import Ancestry
from rsm_spark.core.digest import StateDigest, digest_bytes, row_term, table_prefix
from rsm_spark.core.durable import DurableMachine, KernelChange, StateMark
from rsm_spark.core.envelope import Envelope, body_of, decode_envelope, entry_hash, root_hash
from rsm_spark.core.kernel_tables import Checkpoint, Checkpoints, VerifiedSnapshot, VerifiedTable
from rsm_spark.core.machine import (
    MachineDescription,
    MigratingMachine,
    Row,
    RowChange,
    StateMachine,
    check_described,
    decode_description,
    encode_description,
    evolving,
)
from rsm_spark.core.migrations import MigrationTable, RunningMigration
from rsm_spark.core.position import NO_REVISION, LogPosition
from rsm_spark.core.records import (
    FORMAT_LEVEL,
    MACHINE_TYPE_FIRST,
    MIGRATIONS_TABLE,
    SESSIONS_TABLE,
    VERIFIED_TABLE,
    WRITERS_TABLE,
    CommandHead,
    KernelRecord,
    Record,
    decode_records,
)
from rsm_spark.core.seal import ForeignEntryError
from rsm_spark.core.sessions import SessionTable
from rsm_spark.core.writers import WriterTable
from rsm_spark.errors import (
    CorruptLogError,
    CorruptSnapshotError,
    ForkedLogError,
    StateDivergedError,
)

_FACTS = frozenset(
    {
        KernelRecord.LEADER_STARTED,
        KernelRecord.AUDITED,
        KernelRecord.KEY_ADOPTED,
        KernelRecord.CHECKPOINT_SIGNED,
    }
)


class StateTip(msgspec.Struct, frozen=True):
    """Place of a state in its log.

    Attributes:
        revision: Of the last record applied.
        prefix_hash: Hash after the last entry applied.
        leader_epoch: Of that entry.
        logged_ms: Its logged time.
        is_sealed: It was sealed with the log's key, and so is every one after it.

    """

    revision: int
    prefix_hash: bytes
    leader_epoch: int
    logged_ms: int
    is_sealed: bool = False


class ReplicatedState:
    """Machine, kernel tables, and where in the log they are.

    Attributes:
        machine: The service's state.
        sessions: The clients' sessions.
        writers: Writers, and what of their batches was applied.
        checkpoints: The last ones applied; not part of the state.
        log_id: uuid of the log, 16 bytes.
        revision: Of the last record applied.
        entry_revision: Of the last record of the last entry concluded. Invariant: <= `revision`.
        prefix_hash: Hash after the last entry applied.
        leader_epoch: Of the last entry applied.
        logged_ms: Logged time of the last entry applied.
        is_sealed: An entry applied was sealed: every one after it must be.
        description: How the machine described itself in the log last; None before.
        format_level: Of the last FORMAT_RAISED applied since boot; 1 before: the chain knows the log's.
        checkpoint_revision: Revision of the last CHECKPOINT_LOGGED, 0 if none.
        settled_revision: Revision at which `settle` last ran.

    """

    def __init__(self, machine: StateMachine, log_id: bytes, origins: tuple[tuple[int, bytes], ...] = ()) -> None:
        self.machine = machine
        self.log_id = log_id
        self._ancestry = Ancestry(log_id, origins)
        self.sessions = SessionTable()
        self.writers = WriterTable()
        self.checkpoints = Checkpoints()
        self.revision = NO_REVISION
        self.entry_revision = NO_REVISION
        self.prefix_hash = root_hash(self._ancestry.root)
        self.leader_epoch = 0
        self.logged_ms = 0
        self.is_sealed = False
        self.description: MachineDescription | None = None
        # As a mark has it: the same for entry after entry.
        self._described: tuple[MachineDescription, bytes] | None = None
        self.format_level = 1
        self.checkpoint_revision = NO_REVISION
        self._verified = VerifiedTable()
        self._migrations = MigrationTable()
        self._digest = StateDigest()
        self._row_count = 0
        # Net change of each row since the last settle, (before, now), by table and key.
        self._unsettled: dict[str, dict[bytes, tuple[bytes | None, bytes | None]]] = {}
        self._durable = machine if isinstance(machine, DurableMachine) else None
        # The kernel's rows that a durable machine has not kept yet, by table and key.
        self._unkept: dict[tuple[str, bytes], Row | None] = {}

    @property
    def tip(self) -> StateTip:
        """Place of this state in its log."""
        return StateTip(self.revision, self.prefix_hash, self.leader_epoch, self.logged_ms, self.is_sealed)

    @property
    def verified(self) -> Mapping[str, VerifiedSnapshot]:
        """Newest verified snapshot of each place, by place."""
        return self._verified.by_place

    @property
    def migration(self) -> RunningMigration | None:
        """The migration that the log is in, or None."""
        return self._migrations.running

    @property
    def digest(self) -> int:
        """Digest of the state at `revision`."""
        self.settle()
        return self._digest.value

    @property
    def row_count(self) -> int:
        """Number of rows of all tables, the kernel's included."""
        self.settle()
        return self._row_count

    def apply_entry(self, payload: bytes | memoryview, prefix_hash: bytes | None = None) -> Envelope:
        """Apply one entry of the log. That its seal is right was found where it was read.

        Args:
            payload: Of the entry.
            prefix_hash: Hash after it, if it is known already.

        Returns:
            Its header.

        Raises:
            ForkedLogError: It belongs to another log or does not continue this history.
            CorruptLogError: It is not what its place demands; `ForeignEntryError` if it lacks a seal.
            StateDivergedError: Its checkpoint contradicts this state.

        """
        envelope = decode_envelope(payload)
        self._check(envelope)
        records = decode_records(body_of(payload))
        if len(records) != envelope.record_count:
            raise CorruptLogError(
                f"entry at revision {envelope.first_revision} names {envelope.record_count} records and "
                f"holds {len(records)}"
            )
        self._fold_all(records, envelope.logged_ms)
        self.finish_entry(envelope, prefix_hash or entry_hash(payload))
        return envelope

    def _fold_all(self, records: list[Record], logged_ms: int) -> None:
        """Apply the records of an entry: `fold` for each, spelled out, since a replay does little else."""
        apply, answer, unsettled = self.machine.apply, self.sessions.answer, self._unsettled
        revision = self.revision
        for record in records:
            revision += 1
            record_type = record.type
            if record_type < MACHINE_TYPE_FIRST:
                self.revision = revision - 1
                self.fold(record_type, record.command, record.fields, logged_ms)
                unsettled = self._unsettled  # A checkpoint settles.
                continue
            head = record.command
            if head is not None:
                answer(head, logged_ms, revision)
            change = apply(record_type, record.fields, revision)
            if change is not None:
                table, key, old, new = change
                changes = unsettled.get(table)
                if changes is None:
                    changes = unsettled[table] = {}
                before = changes.get(key)
                changes[key] = (old, new) if before is None else (before[0], new)
        self.revision = revision

    def _check(self, envelope: Envelope) -> None:
        at = f"entry at revision {envelope.first_revision} of epoch {envelope.leader_epoch}"
        log_id = self._ancestry.at(envelope.first_revision)
        if envelope.log_id != log_id:
            raise ForkedLogError(f"{at} is of log {envelope.log_id.hex()}, this state of log {log_id.hex()}")
        if envelope.first_revision != self.revision + 1:
            raise CorruptLogError(f"{at} was read where revision {self.revision + 1} must follow")
        if envelope.prefix_hash != self.prefix_hash:
            raise ForkedLogError(
                f"{at} continues prefix hash {envelope.prefix_hash.hex()}, this state has {self.prefix_hash.hex()}: "
                "they come from different histories"
            )
        if envelope.leader_epoch < self.leader_epoch:
            raise CorruptLogError(f"{at} was read after epoch {self.leader_epoch}")
        if envelope.logged_ms < self.logged_ms:
            raise CorruptLogError(f"{at} has logged time {envelope.logged_ms}, before it was {self.logged_ms}")
        if self.is_sealed and not envelope.key_id:
            raise ForeignEntryError(f"{at} has no seal, those before it have one: no leader of this log wrote it")

    def fold(self, record_type: int, head: CommandHead | None, fields: tuple[Any, ...], logged_ms: int) -> None:
        """Apply the next record.

        Raises:
            CorruptLogError: It is none that this version knows.
            StateDivergedError: It is a checkpoint that contradicts this state.

        """
        revision = self.revision + 1
        if head is not None:
            self.sessions.answer(head, logged_ms, revision)
        if record_type >= MACHINE_TYPE_FIRST:
            change = self.machine.apply(record_type, fields, revision)
            if change is not None:
                self._note(change)
        elif record_type != KernelRecord.COMMAND_ANSWERED:
            self._fold_kernel(record_type, fields, logged_ms, revision)
        self.revision = revision

    def fold_command(self, records: Sequence[tuple[int, tuple[Any, ...]]], head: CommandHead, logged_ms: int) -> None:
        """Apply the records of a command, none or more: `fold` for each, spelled out, since a leader does little else.

        Raises:
            CorruptLogError: One is none that this version knows.

        """
        revision = self.revision + 1
        self.sessions.answer(head, logged_ms, revision)
        self.revision = revision  # Of one without records, too.
        unsettled = self._unsettled
        for record_type, fields in records:
            if record_type < MACHINE_TYPE_FIRST:
                self.revision = revision - 1
                self.fold(record_type, None, fields, logged_ms)
                unsettled = self._unsettled
            elif (change := self.machine.apply(record_type, fields, revision)) is not None:
                table, key, old, new = change
                changes = unsettled.get(table)
                if changes is None:
                    changes = unsettled[table] = {}
                before = changes.get(key)
                changes[key] = (old, new) if before is None else (before[0], new)
            self.revision = revision
            revision += 1

    def _note(self, change: RowChange) -> None:
        """Keep the net change of a row until it is settled."""
        table, key, old, new = change
        changes = self._unsettled.get(table)
        if changes is None:
            changes = self._unsettled[table] = {}
        before = changes.get(key)
        changes[key] = (old, new) if before is None else (before[0], new)

    def _fold_kernel(self, record_type: int, fields: tuple[Any, ...], logged_ms: int, revision: int) -> None:
        match record_type:
            case KernelRecord.MACHINE_DESCRIBED:
                (description,) = fields
                self.description = self._accept(decode_description(description))
            case _ if record_type in _FACTS:
                pass  # For whoever reads the log; no row.
            case KernelRecord.SESSION_OPENED:
                (session,) = fields
                self.sessions.open(session, logged_ms, revision)
            case KernelRecord.SESSION_EXPIRED:
                (session,) = fields
                self.sessions.expire(session, revision)
            case KernelRecord.CHECKPOINT_LOGGED:
                self._verify(*fields)
                self.checkpoint_revision = revision
            case KernelRecord.SNAPSHOT_VERIFIED | KernelRecord.SNAPSHOT_WITHDRAWN:
                self._note(self._verified.fold(record_type, fields, revision))
            case KernelRecord.WRITER_MARKED | KernelRecord.WRITER_FORGOTTEN:
                self._note(self.writers.fold(record_type, fields, revision))
            case KernelRecord.MIGRATED:
                self._note(self._migrations.fold(fields, revision))
                self._tell_migration()
            case KernelRecord.FORMAT_RAISED:
                (level,) = fields
                self._raise_format(level, revision)
            case _:
                raise CorruptLogError(
                    f"revision {revision} is a record of type {record_type}, which this version does not know: upgrade"
                )

    def _accept(self, description: MachineDescription) -> MachineDescription:
        check_described(self.machine, description)
        follower = evolving(self.machine)
        if follower is not None and description != self.description:
            follower.follow(description)
        return description

    def _tell_migration(self) -> None:
        if isinstance(self.machine, MigratingMachine):
            self.machine.follow_migration(self._migrations.running)

    def _raise_format(self, level: int, revision: int) -> None:
        if level > FORMAT_LEVEL:
            raise CorruptLogError(
                f"revision {revision} raises the log's format to level {level}, this version knows {FORMAT_LEVEL}: "
                "upgrade"
            )
        self.format_level = max(self.format_level, level)

    def _verify(self, revision: int, digest: bytes, row_count: int) -> None:
        """Compare a checkpoint with this state; before it in its entry stands nothing that changes a row."""
        found = Checkpoint(self.entry_revision, digest_bytes(self.digest), self.row_count, self.prefix_hash)
        if found[:3] != (revision, digest, row_count):
            raise StateDivergedError(
                f"checkpoint of revision {revision}: digest {digest.hex()}, {row_count} rows; this replica has at "
                f"revision {found.revision} digest {found.digest.hex()}, {found.row_count} rows. Its state is wrong: "
                "keep it for inspection, start the replica from a snapshot",
                revision=revision,
                digest=digest,
                row_count=row_count,
                own_digest=found.digest,
            )
        self.checkpoints.add(found)

    def finish_entry(self, envelope: Envelope, prefix_hash: bytes) -> None:
        """Conclude the entry whose records were folded."""
        self.entry_revision = self.revision
        self.prefix_hash = prefix_hash
        self.leader_epoch = envelope.leader_epoch
        self.logged_ms = envelope.logged_ms
        self.is_sealed = bool(envelope.key_id)

    def settle(self) -> None:
        """Bring digest and row count up to date; a leader does so while its entry is on the way."""
        if self._unsettled:
            unsettled, self._unsettled = self._unsettled, {}
            for table, changes in unsettled.items():
                self._row_count += self._digest.replace_all(table, changes)
                if self._durable is not None and table == WRITERS_TABLE:
                    self._unkept.update({(table, key): self.writers.row_of(key) for key in changes})
                elif self._durable is not None and table.startswith("_"):
                    now = {row.key: row for row in self._small_rows() if row.table == table}
                    self._unkept.update({(table, key): now.get(key) for key in changes})
        if self.sessions.is_touched:
            changes = self.sessions.take_changes()
            self._row_count += self._digest.replace_all(SESSIONS_TABLE, changes)
            if self._durable is not None:
                self._unkept.update({(SESSIONS_TABLE, key): self.sessions.row_of(key) for key in changes})

    def _small_rows(self) -> Iterator[Row]:
        """Iterate over the rows of the kernel's tables that are never large."""
        yield from self._verified.rows()
        yield from self._migrations.rows()

    def keep(self, position: LogPosition | None) -> None:
        """Have a durable machine keep this state, which is confirmed; does nothing for others.

        Args:
            position: Of the last entry applied.

        """
        durable = self._durable
        if durable is None:
            return
        digest = digest_bytes(self.digest)  # Settles.
        changes = [KernelChange(table, key, row) for (table, key), row in self._unkept.items()]
        ledger_id, entry_id = position or LogPosition(-1, -1)
        mark = StateMark(
            self.log_id.hex(),
            self.revision,
            self.prefix_hash,
            self.leader_epoch,
            self.logged_ms,
            self.is_sealed,
            ledger_id,
            entry_id,
            digest,
            self._row_count,
            self.format_level,
            self.checkpoint_revision,
            self._description_bytes(),
        )
        durable.commit(mark, changes)
        self._unkept = {}

    def _description_bytes(self) -> bytes:
        description = self.description
        if description is None:
            return b""
        if self._described is None or self._described[0] is not description:
            self._described = description, encode_description(description)
        return self._described[1]

    def resume(self, mark: StateMark) -> None:
        """Take the state that a durable machine has kept as this one.

        Args:
            mark: Of it.

        Raises:
            CorruptSnapshotError: The kernel's rows are none.
            CorruptLogError, MachineVersionError: Another machine, or a newer version of it, has described the log.

        """
        assert self._durable is not None
        self.description = self._accept(decode_description(mark.description)) if mark.description else None
        kernel = _kernel_lists()
        for row in _split(self._durable.kernel_rows(), kernel, _Total()):
            raise CorruptSnapshotError(f"a row of table {row.table!r} stands among the kernel's")
        self._restore_kernel(kernel)
        self._digest = StateDigest(int.from_bytes(mark.digest, "big"))
        self._row_count = mark.row_count
        self._stand_at(StateTip(mark.revision, mark.prefix_hash, mark.leader_epoch, mark.logged_ms, mark.is_sealed))
        self.format_level, self.checkpoint_revision = mark.format_level, mark.checkpoint_revision

    def rows(self) -> Iterator[Row]:
        """Iterate over all rows as they are at this call; any thread may consume."""
        self.settle()
        sessions = self.sessions.rows()
        verified = self._verified.rows()
        migrations = self._migrations.rows()
        writers = self.writers.rows()
        machine = self.machine.rows()

        def _all() -> Iterator[Row]:
            yield from sessions
            yield from verified
            yield from migrations
            yield from writers
            yield from machine

        return _all()

    def restore(self, rows: Iterable[Row], tip: StateTip, description: MachineDescription | None) -> None:
        """Replace the state by a snapshot's.

        Args:
            rows: Of all tables, the kernel's included.
            tip: Where the snapshot was taken.
            description: The machine's, as of then.

        Raises:
            CorruptSnapshotError: The rows are none that this state can hold.
            MachineVersionError: A newer version of the machine wrote them.

        """
        if description is not None:
            self._accept(description)
        kernel = _kernel_lists()
        total = _Total()
        self.machine.restore(_split(rows, kernel, total))
        self._restore_kernel(kernel)
        if self._durable is not None:
            self._unkept = {(row.table, row.key): row for table in kernel.values() for row in table}
        self._digest = StateDigest(total.digest % (1 << 128))
        self._row_count = total.count
        self._stand_at(tip)
        self.description = description
        self.checkpoint_revision = NO_REVISION

    def _restore_kernel(self, kernel: dict[str, list[Row]]) -> None:
        self.sessions.restore(kernel[SESSIONS_TABLE])
        self._verified.restore(kernel[VERIFIED_TABLE])
        self._migrations.restore(kernel[MIGRATIONS_TABLE])
        self.writers.restore(kernel[WRITERS_TABLE])
        self._tell_migration()
        self.checkpoints.clear()
        self._unsettled = {}

    def _stand_at(self, tip: StateTip) -> None:
        self.revision = self.entry_revision = tip.revision
        self.prefix_hash = tip.prefix_hash
        self.leader_epoch = tip.leader_epoch
        self.logged_ms = tip.logged_ms
        self.is_sealed = tip.is_sealed

    def validate(self) -> None:
        """Check the invariants, from scratch: for tests."""
        self.sessions.validate()
        total = _Total()
        for row in self.rows():
            total.add(row)
        assert (self.digest, self.row_count) == (total.digest % (1 << 128), total.count), "digest drifted"


class _Total:
    """Digest and count of rows that pass by."""

    def __init__(self) -> None:
        self.digest = 0
        self.count = 0
        self._prefixes: dict[str, bytes] = {}

    def add(self, row: Row) -> None:
        prefix = self._prefixes.get(row.table)
        if prefix is None:
            prefix = self._prefixes[row.table] = table_prefix(row.table)
        self.digest += row_term(prefix, row.key, row.row)
        self.count += 1


def _kernel_lists() -> dict[str, list[Row]]:
    return {SESSIONS_TABLE: [], VERIFIED_TABLE: [], MIGRATIONS_TABLE: [], WRITERS_TABLE: []}


def _split(rows: Iterable[Row], kernel: dict[str, list[Row]], total: _Total) -> Iterator[Row]:
    """Yield the machine's rows, put the kernel's aside by table, count all."""
    for row in rows:
        total.add(row)
        if not row.table.startswith("_"):
            yield row
        elif row.table in kernel:
            kernel[row.table].append(row)
        else:
            raise CorruptSnapshotError(f"this version's kernel has no table {row.table!r}: upgrade")
