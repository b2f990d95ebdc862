"""Typed tables of the state in the lake: of each snapshot that the lake has, written by who has it on its disk too."""

from __future__ import annotations

import logging

from rsm_spark.core.row_tables import DescribedTables, RowTables, TabledMachine
from rsm_spark.errors import SnapshotError
from rsm_spark.runtime.context import ReplicaContext
from rsm_spark.snapshots.manifest import SnapshotManifest, SnapshotStore, TabledStore, TableState

_LOGGER = logging.getLogger(__name__)
_ALARM = "lake tables"


class TableService:
    """Has the tables follow the lake's snapshots.

    Args:
        context: Of the replica.
        lake: The lake's snapshots of this log.

    Attributes:
        revision: Of the tables, as far as known; -1 = there are none.

    """

    def __init__(self, context: ReplicaContext, lake: SnapshotStore) -> None:
        self._context = context
        self._lake = lake
        self._is_known = False
        self.revision = -1

    async def follow(self, revision: int) -> None:
        """Write the tables of the lake's newest snapshot if it is on this disk too, and they are not there yet.

        What fails is an alarm, and tried again in the next round: snapshots do not depend on it.

        Args:
            revision: Of the lake's newest snapshot.

        """
        context, lake = self._context, self._lake
        if not isinstance(lake, TabledStore) or (self._is_known and self.revision >= revision):
            return
        try:
            self.revision = await context.run_blocking(lake.tables.newest_revision)
            self._is_known = True
            if self.revision >= revision:
                return
            local: list[SnapshotManifest] = await context.run_blocking(context.snapshots.manifests)
            source = next((one for one in local if (one.log_id, one.revision) == (context.log_id, revision)), None)
            if source is None:
                return  # Another replica has written the snapshot, and gone; the next one is written here.
            states = await context.run_blocking(lambda: self._write(lake, source))
        except SnapshotError as error:
            context.alarms[_ALARM] = f"typed tables in the lake are of revision {self.revision}: {error}"
            _LOGGER.warning("typed tables could not be written: %s", error, extra=context.log_extra)
            return
        self.revision = revision
        problems = [f"{one.table}: {one.problem}" for one in states if one.problem]
        if problems:
            more = f"; {len(problems) - 1} more" if len(problems) > 1 else ""
            context.alarms[_ALARM] = f"no typed table in the lake of {problems[0]}{more}"
        else:
            context.alarms.pop(_ALARM, None)
        _LOGGER.info("wrote %d typed tables of revision %d", len(states), revision, extra=context.log_extra)

    def _write(self, lake: TabledStore, source: SnapshotManifest) -> list[TableState]:
        snapshots = self._context.snapshots
        return list(lake.tables.write(source, lambda: snapshots.read(source), self._row_tables(source)))

    def _row_tables(self, source: SnapshotManifest) -> RowTables:
        machine = self._context.machine
        return machine.row_tables() if isinstance(machine, TabledMachine) else DescribedTables(source.machine)
