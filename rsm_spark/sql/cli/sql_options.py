"""Options of commands for the tables of one log."""

from __future__ import annotations

from typing import Annotated

from ledger.options import Option
from rsm_spark.cli.terminal import LogsOptions
from rsm_spark.client.kept_session import KeptSession
from rsm_spark.sql.client.client import SqlClient


class SqlOptions(LogsOptions, frozen=True, kw_only=True):
    """Options of a command for the tables of one log."""

    log: Annotated[str, Option("Name of the log.", variables=("RSM_LOG",))]
    replica: Annotated[
        str | None, Option("Read from this replica, at the revision that it has.", metavar="HOST:PORT")
    ] = None
    timeout_s: Annotated[float, Option("Seconds to wait for a leader.", name="timeout", ge=0.01)] = 15.0

    async def connect(self) -> SqlClient:
        """Return a connected client."""
        return await SqlClient.connect(
            self.log, self.metadata_uri, replica=self.replica, rsm_root=self.rsm_root, timeout_s=self.timeout_s
        )

    async def connect_once(self) -> SqlClient:
        """Return a connected client for one statement, which shares a session with other commands."""
        client = await self.connect()
        client.keep_session(KeptSession.of_user(self.log, self.metadata_uri, self.rsm_root))
        return client
