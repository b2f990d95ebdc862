"""Start of followers: tables that are there go on, if the log still has their history; others are made.

A table begins with the log's first record, or with a snapshot in the lake if that record was trimmed.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import time
from collections.abc import Callable, Sequence

import msgspec

from connectors.delta.begin import DESCRIPTION_WAIT_S_MAX, check_history, described, former_names, looked_at
from connectors.delta.bootstrap import begin_with_snapshot
from connectors.delta.follower import FollowerTable
from connectors.delta.followers import FollowerSet, wanted_table
from connectors.delta.place import MERGE_MODE
from connectors.delta.position import TablePosition
from connectors.delta.settings import MaterializeSettings
from connectors.errors import DeltaSinkError
from connectors.source.look import LogLook
from connectors.source.plan import LogView, locate_revision
from rsm_spark.core.envelope import decode_envelope
from rsm_spark.core.machine import MachineDescription, TableDescription
from rsm_spark.snapshots.manifest import SnapshotManifest

_LOGGER = logging.getLogger(__name__)


def open_followers(settings: MaterializeSettings, should_stop: Callable[[], bool]) -> FollowerSet:
    """Return the tables to feed, made if need be, after checking that the log goes on where they stand.

    Raises:
        DeltaSinkError: The log is not described, has no such table, or lacks records that a table needs.
        ForeignTableError: A table follows another log or another history of it.

    """
    with looked_at(settings) as look:
        return _Start(settings, look, *described(look, should_stop)).open()


def open_partitions(
    settings: MaterializeSettings, partitions: Sequence[str], should_stop: Callable[[], bool]
) -> dict[str, FollowerSet]:
    """Return the tables of each partition; a partition that has no record yet is described as the others are.

    Args:
        settings: Of the whole.
        partitions: Names of its partitions, in order.
        should_stop: Asked now and then.

    Raises:
        DeltaSinkError, ForeignTableError: See `open_followers`.

    """
    machine: MachineDescription | None = None
    found: dict[str, FollowerSet] = {}
    deadline_s = time.monotonic() + DESCRIPTION_WAIT_S_MAX
    while machine is None:
        machine = next(filter(None, map(functools.partial(_description_of, settings), partitions)), None)
        if machine is None and (should_stop() or time.monotonic() > deadline_s):
            raise DeltaSinkError(f"log {settings.log} holds no record in any of its partitions: write to it first")
    for number, log in enumerate(partitions):
        own = msgspec.structs.replace(settings, log=log, place=f"{settings.place.rstrip('/')}/p{number}")
        with looked_at(own) as look:
            view = look.look()
            is_empty = view.first_revision <= 1 and look.description_at(view, view.end.ledger_id) is None
            start = (machine, view) if is_empty else described(look, should_stop)
            found[log] = _Start(own, look, *start).open()
    return found


def _description_of(settings: MaterializeSettings, log: str) -> MachineDescription | None:
    with looked_at(msgspec.structs.replace(settings, log=log)) as look:
        view = look.look()
        return look.description_at(view, view.end.ledger_id)


class _Start:
    """One look at log and tables."""

    def __init__(
        self, settings: MaterializeSettings, look: LogLook, machine: MachineDescription, view: LogView
    ) -> None:
        self._settings = settings
        self._look = look
        self._machine, self._view = machine, view
        self._only = ""

    def open(self) -> FollowerSet:
        machine = self._machine
        if not self._settings.is_every_table:
            self._only = wanted_table(machine, self._settings.machine_table)
        if not machine.tables:
            raise DeltaSinkError(f"machine {machine.name} has no tables: there is nothing to materialize")
        tables = FollowerSet(self._follower)
        wanted = [one for one in (self._follower(self._first(table)) for table in machine.tables) if one is not None]
        missing: list[FollowerTable] = []
        late: list[FollowerTable] = []
        for follower in wanted:
            position = follower.position()
            if position is None and self._view.first_revision > 1:
                missing.append(follower)
            elif position is not None and position.revision + 1 < self._view.first_revision:
                # One that is empty was made by a run that was broken off before the snapshot was in it.
                (late if position.revision else missing).append(follower)
            elif position is not None:
                self._check_history(follower, position)
        self._begin(missing, late)
        for follower in wanted:
            tables.add(follower)
        return tables

    def _follower(self, table: TableDescription) -> FollowerTable | None:
        settings = self._settings
        if not settings.is_every_table and table.name != self._only:
            return None
        place = f"{settings.place.rstrip('/')}/{table.name}" if settings.is_every_table else settings.place
        if settings.is_every_table and (not table.name or {"/", "\\"} & set(table.name) or table.name[0] in "._"):
            raise DeltaSinkError(f"table {table.name!r} cannot be the name of a folder: take it alone, by --table")
        return FollowerTable(
            place,
            log=settings.log,
            log_id=self._look.log_id.hex(),
            table=table,
            mode=settings.mode,
            has_change_feed=settings.has_change_feed,
            position_interval_s=settings.position_interval_s,
            storage_options=settings.storage_options or None,
        )

    def _first(self, table: TableDescription) -> TableDescription:
        """Return a table as the log describes it first: columns that are added pass in the stream."""
        for span in self._view.spans:
            described = self._look.description_at(self._view, span.ledger_id)
            for one in described.tables if described is not None else ():
                if one.name == table.name:
                    return one
        return table

    def _check_history(self, follower: FollowerTable, position: TablePosition) -> None:
        """Compare the table's history with the log's; give it its place in the log again if that was cleared away."""
        view, look = self._view, self._look
        if not position.prefix_hash:
            if position.revision < view.first_revision:
                return
            found = locate_revision(view, position.revision, look.last_revision_at)
            if look.last_revision_at(found.ledger_id, found.entry_id) == position.revision:
                text = hashlib.sha256(look.payload_at(found.ledger_id, found.entry_id)).hexdigest()
                follower.restate(
                    msgspec.structs.replace(position, ledger=found.ledger_id, entry=found.entry_id, prefix_hash=text)
                )
            return
        check_history(look, view, position, follower.place)

    def _begin(self, missing: list[FollowerTable], late: list[FollowerTable]) -> None:
        """Make tables from the lake whose first records were trimmed."""
        settings, view = self._settings, self._view
        if not missing and not late:
            return
        names = ", ".join(follower.name for follower in (*missing, *late))
        if not settings.lake:
            raise DeltaSinkError(
                f"log {settings.log} begins with record {view.first_revision} now, those before were trimmed, and "
                f"these tables lack some of them: {names}. Begin with a snapshot: --lake and the place of the snapshots"
            )
        if late and settings.mode != MERGE_MODE:
            raise DeltaSinkError(
                f"log {settings.log} begins with record {view.first_revision} now, and the history in {names} ends "
                "before: changes in between are gone for good; keep this table and materialize into a new place"
            )
        manifest = begin_with_snapshot(
            [*missing, *late],
            settings.lake,
            first_revision=view.first_revision,
            end_revision=view.end.revision,
            continues=self._continues,
            former_names=former_names(settings),
            storage_options=settings.storage_options or None,
        )
        said = "%s begin with the snapshot at revision %d"
        _LOGGER.info(said, names, manifest.revision, extra={"revision": manifest.revision})

    def _continues(self, manifest: SnapshotManifest) -> bool:
        """Tell whether the log goes on from a snapshot: same hash at its place, or in what follows it."""
        view, look = self._view, self._look
        if view.index_of(manifest.ledger_id) >= 0:
            payload = look.payload_at(manifest.ledger_id, manifest.entry_id)
            return hashlib.sha256(payload).hexdigest() == manifest.prefix_hash
        if manifest.revision != view.first_revision - 1:
            return False
        for span in view.spans:
            if span.last_entry_id >= 0:
                return decode_envelope(look.payload_at(span.ledger_id, 0)).prefix_hash.hex() == manifest.prefix_hash
        return True
