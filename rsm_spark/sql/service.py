"""SQL tables served: what `rsm sql serve` runs, and what a program embeds.

    settings = StoreSettings(log="shop", replica_id="a", data_dir=Path("/var/lib/shop-a"))
    client = await LedgerClient.connect("zk+hierarchical://127.0.0.1:2181/ledgers")
    async with SqlService(client, settings) as service:
        await service.wait_stopped()

The file of the tables is `tables.db` in the replica's folder. It is the replica's alone: to look into it, copy it.
"""

from __future__ import annotations

import msgspec

from ledger.client.client import LedgerClient
from rsm_spark.server.replica_server import StoreService, StoreSettings
from rsm_spark.snapshots.manifest import SnapshotStore
from rsm_spark.sql.limits import SqlSettings
from rsm_spark.sql.machine import SqlMachine
from rsm_spark.sql.reads import ReaderPool, SqlReads
from rsm_spark.transport.reach import WHOLE_LOG

TABLES_FILE = "tables.db"


def patient(settings: StoreSettings, sql: SqlSettings) -> StoreSettings:
    """Return settings by which a leader that runs a long statement is not taken for one that stands still.

    Statements run on the event loop, which does not beat meanwhile.
    """
    replica = settings.replica
    if not replica.beat_silence_s:
        return settings
    silence_s = replica.beat_silence_s + sql.command_ms_max / 1000
    return msgspec.structs.replace(settings, replica=msgspec.structs.replace(replica, beat_silence_s=silence_s))


class SqlService(StoreService):
    """A replica of SQL tables, and its server. For the event loop on which it is made.

    Args:
        client: Connected ledger client; stays the caller's to close.
        settings: Log, replica id, folder, address and the rest.
        sql: Limits of the tables.
        lake: Snapshots to boot from when there is nothing on the disk.

    Raises:
        RsmError: The port is taken, or the file of the tables cannot be opened.

    """

    def __init__(
        self,
        client: LedgerClient,
        settings: StoreSettings,
        sql: SqlSettings | None = None,
        lake: SnapshotStore | None = None,
    ) -> None:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        sql = sql or SqlSettings()
        self.machine = SqlMachine(settings.data_dir / TABLES_FILE, sql)
        super().__init__(client, patient(settings, sql), lake=lake, machine=self.machine, keys=WHOLE_LOG)
        self._readers = ReaderPool(self.machine.path, sql)
        self.backend = SqlReads(self.replica, self._readers)

    async def stop(self) -> None:
        """Leave in an orderly way, then close the file."""
        try:
            await super().stop()
        finally:
            self._readers.close()
            self.machine.close()
