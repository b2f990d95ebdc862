"""The process of a console: `rsm console` ends in `run_console`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import msgspec

from ledger.client.client import LedgerClient
from ledger.client.settings import ClientSettings
from ledger.process_guard import ProcessGuard
from rsm_spark.console.service import ClusterConsole
from rsm_spark.console.settings import ConsoleSettings

_STOP_S = 10.0


class ConsoleNotice(msgspec.Struct, frozen=True):
    """The line by which a console says that it serves."""

    ready: bool
    url: str
    pid: int


def run_console(
    metadata_uri: str | None,
    settings: ConsoleSettings,
    rsm_root: str,
    on_ready: Callable[[ConsoleNotice], None],
    *,
    stall_s: float,
) -> None:
    """Run a console until SIGTERM or SIGINT.

    Args:
        metadata_uri: Where the cluster is.
        settings: See `ConsoleSettings`.
        rsm_root: Root of the logs.
        on_ready: Told when it serves.
        stall_s: How long the event loop may stand still; 0 = for ever.

    Raises:
        LedgerError: It cannot start: what is wrong and what would help.

    """

    async def serve(guard: ProcessGuard) -> None:
        client = await LedgerClient.connect(metadata_uri, settings=ClientSettings.from_environment())
        try:
            async with ClusterConsole(client, settings, rsm_root) as console:
                guard.ready()
                on_ready(ConsoleNotice(ready=True, url=console.url, pid=os.getpid()))
                await guard.stopped.wait()
        finally:
            await client.close()

    async def guarded() -> None:
        with ProcessGuard("console", stall_s=stall_s, stop_s=_STOP_S) as guard:
            await serve(guard)

    asyncio.run(guarded())
