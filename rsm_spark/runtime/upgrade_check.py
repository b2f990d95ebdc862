"""A log folded by the next version of its machine, before that version is rolled: nothing is written anywhere."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import msgspec

from ledger.client.client import LedgerClient
from rsm_spark.core.chain import Leadership
from rsm_spark.core.evolution import changes_between, check_evolution
from rsm_spark.core.machine import StateMachine, evolving
from rsm_spark.core.migrations import RunningMigration, steps_between
from rsm_spark.core.table_machine import TableMachine
from rsm_spark.errors import RsmError
from rsm_spark.log.commit_log import LogEntry
from rsm_spark.runtime.boot import boot
from rsm_spark.runtime.context import ReplicaContext
from rsm_spark.runtime.peers import Peers
from rsm_spark.runtime.settings import ReplicaSettings
from rsm_spark.snapshots.manifest import SnapshotStore


class UpgradeCheck(msgspec.Struct, frozen=True):
    """Result of a check.

    Attributes:
        log: Name of the log.
        machine: Name of its machine.
        log_version: Version that the log is of.
        code_version: Version of the code.
        snapshot_revision: The fold began with the snapshot of this revision; 0 = with the first record.
        revision: Last revision that was folded.
        row_count: Rows then.
        digest: Of the state then, 32 hex digits.
        changes: What the code's version changes, its migrations too, in words; empty if the log is of that version.

    """

    log: str
    machine: str
    log_version: int
    code_version: int
    snapshot_revision: int
    revision: int
    row_count: int
    digest: str
    changes: list[str]


async def check_upgrade(
    client: LedgerClient,
    log: str,
    machine: StateMachine,
    *,
    settings: ReplicaSettings,
    snapshots: SnapshotStore,
    peers: Peers | None = None,
    lake: SnapshotStore | None = None,
) -> UpgradeCheck:
    """Fold a log, from the newest snapshot that can be had, with a machine; say what its version changes.

    Args:
        client: Connected.
        log: Name of the log, which exists.
        machine: Of the next version, empty.
        settings: Root, password and keys count.
        snapshots: An empty folder of one's own.
        peers: Replicas whose snapshots may be copied into it.
        lake: Where else snapshots may be.

    Raises:
        NoSuchLogError: There is no such log.
        InvalidDescriptionError: This version cannot follow that of the log, or a migration of it fails on a row; the
            message names the column, or the row.
        RsmError: The machine cannot fold a record or a row of a snapshot; the message says which and why.
        LedgerError: Metadata store or bookies cannot be asked.

    """
    context = ReplicaContext(
        machine, log=log, me=Leadership("upgrade check", "0" * 32), client=client, snapshots=snapshots, lake=lake,
        settings=settings, clock_ms=lambda: 0, rng=random.Random(0), run_blocking=asyncio.to_thread,  # noqa: S311
    )  # fmt: skip
    await context.chains.read()  # A name that is none must not become a log.
    context.peers = peers
    first = await boot(context)
    reader = context.reader()
    try:
        while not reader.is_at_end:
            entries = await reader.read()
            for entry in entries:
                _fold(context, entry)
            if not entries and reader.ledgers_ahead == 0:
                break  # Of a ledger that is being written everything is committed that can be read.
    finally:
        await reader.close()
    logged, own = context.state.description, machine.description
    if logged is None:
        raise RsmError(f"log {log} has no record yet: there is nothing to check")
    _read_all(machine)
    check_evolution(logged, own)
    changes = changes_between(logged, own) + _migrate_all(machine, logged.version, context.tip.revision)
    return UpgradeCheck(
        log=log,
        machine=own.name,
        log_version=logged.version,
        code_version=own.version,
        snapshot_revision=first,
        revision=context.tip.revision,
        row_count=context.state.row_count,
        digest=f"{context.state.digest:032x}",
        changes=changes,
    )


def _fold(context: ReplicaContext, entry: LogEntry) -> None:
    own = context.machine.description
    try:
        context.apply(entry)
    except RsmError:
        raise
    except Exception as error:  # whatever it is, it is the machine's
        raise RsmError(
            f"log {context.log}: version {own.version} of machine {own.name!r} cannot fold the entry of revisions "
            f"{entry.envelope.first_revision} to {entry.envelope.last_revision}: {type(error).__name__}: {error}"
        ) from error


def _read_all(machine: StateMachine) -> None:
    """Follow the own version, as after the raise, and look at every row."""
    follower = evolving(machine)
    if follower is not None:
        follower.follow(machine.description)
    for _ in machine.rows():
        pass


def _migrate_all(machine: StateMachine, version: int, revision: int) -> list[str]:
    """Try the migrations on every row; return what they change, in words."""
    if not isinstance(machine, TableMachine):
        return []
    steps = steps_between(machine.migrations, version, machine.description.version)
    machine.follow_migration(RunningMigration(machine.description.version, version, revision + 1))
    migration = machine.migration
    assert migration is not None
    changed: Counter[str] = Counter()
    for table, key in migration.rows(machine.tables):
        record = migration.record(machine.tables, table, key)
        if record is not None:
            machine.loggable([record])
            changed[table] += 1
    names = dict.fromkeys(step.table for step in steps)
    return [f"table {name}: a migration changes {changed[name]} of {machine.count(name)} rows" for name in names]
