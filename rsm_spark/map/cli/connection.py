"""Options that tell commands of `rsm map` which map they are for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

from ledger.options import Option
from rsm_spark.cli.terminal import LogsOptions, run
from rsm_spark.client.kept_session import KeptSession
from rsm_spark.client.replica_connection import ReadFrom
from rsm_spark.map.client.client import MapClient

_Result = TypeVar("_Result")


class MapOptions(LogsOptions, frozen=True, kw_only=True):
    """Options of a command for one map."""

    log: Annotated[str, Option("Name of the log.", variables=("RSM_LOG",))]
    timeout_s: Annotated[float, Option("Seconds to wait for a leader.", name="timeout", ge=0.01)] = 15.0

    async def connect(self) -> MapClient:
        """Return a connected client."""
        return await MapClient.connect(self.log, self.metadata_uri, rsm_root=self.rsm_root, timeout_s=self.timeout_s)

    def ask(self, question: Callable[[MapClient], Awaitable[_Result]]) -> _Result:
        """Return what a client answers, which shares a session with other commands; ctrl-C ends the command."""

        async def _ask() -> _Result:
            async with await self.connect() as client:
                client.keep_session(KeptSession.of_user(self.log, self.metadata_uri, self.rsm_root))
                return await question(client)

        return run(_ask())


class MapReadOptions(MapOptions, frozen=True, kw_only=True):
    """Options of a command that reads, from one replica if it is named."""

    replica: Annotated[
        str | None, Option("Read from this replica, at the revision that it has.", metavar="HOST:PORT")
    ] = None

    async def connect(self, read_from: ReadFrom = "leader") -> MapClient:
        """Return a connected client, of that replica if one is named."""
        return await MapClient.connect(
            self.log,
            self.metadata_uri,
            replica=self.replica,
            read_from=read_from,
            rsm_root=self.rsm_root,
            timeout_s=self.timeout_s,
        )
