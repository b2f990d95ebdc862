"""Repairs in a bookie's process: of the entries it lost, and of the cluster's ledgers if it is told to."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from pathlib import Path
from typing import Final

import msgspec

from ledger.client.client import LedgerClient
from ledger.client.pool import ConnectionPool
from ledger.client.settings import ClientSettings
from ledger.decoding import json_decoder
from ledger.errors import LedgerError
from ledger.replication.app import AutoRecovery
from ledger.replication.self_repair import RepairProgress, SelfRepair
from ledger.replication.settings import ReplicationSettings
from ledger.storage.entry_store import EntryStore
from ledger.zookeeper.ledgers import LedgerStore

_LOGGER = logging.getLogger(__name__)
_FILE_NAME: Final = "repair.json"


def read_repair_file(folder: Path) -> RepairProgress | None:
    """Return how far the last repair of a bookie's own data was when it last told; None if there was none."""
    try:
        return json_decoder(RepairProgress).decode((folder / _FILE_NAME).read_bytes())
    except (OSError, msgspec.DecodeError):
        return None


def start_repairs(
    ledgers: LedgerStore,
    store: EntryStore,
    bookie_id: str,
    folder: Path,
    settings: ReplicationSettings,
    client_settings: ClientSettings,
    *,
    has_auto_recovery: bool,
) -> tuple[list[asyncio.Task[None]], AutoRecovery | None]:
    """Start the repair of this bookie and, if wanted, auto-recovery; return what to cancel at the end, and the latter.

    Args:
        ledgers: Metadata; votes and locks live as long as its session.
        store: The bookie's storage.
        bookie_id: Of the bookie.
        folder: Where the progress is written.
        settings: Times and limits.
        client_settings: Of connections to the bookies.
        has_auto_recovery: Be a candidate for the auditor's place, and replicate.

    """
    loop = asyncio.get_running_loop()
    rng = random.Random()  # noqa: S311 - spreads load, guards nothing
    pool = ConnectionPool(ledgers.bookie_address, rng, client_settings)

    def wall_ms() -> int:
        return time.time_ns() // 1_000_000

    def write(progress: RepairProgress) -> None:
        path = folder / _FILE_NAME
        if not path.exists() and not progress.is_in_limbo and not progress.entry_count and not progress.problems:
            return  # There is nothing to tell.
        partial = folder / f"{_FILE_NAME}.new"
        try:
            partial.write_bytes(msgspec.json.encode(progress))
            partial.replace(path)
        except OSError as error:
            _LOGGER.warning("the progress of the repair cannot be written: %s", error)

    client = LedgerClient(ledgers, pool, rng, client_settings, wall_ms=wall_ms)
    repair = SelfRepair(store, client, pool, bookie_id, settings, on_progress=write)
    tasks = [loop.create_task(repair.run())]
    recovery: AutoRecovery | None = None
    if has_auto_recovery:
        owner = f"{bookie_id}.{os.urandom(4).hex()}"
        recovery = AutoRecovery(ledgers, owner, rng, settings, client_settings, wall_ms=wall_ms)
        tasks.append(loop.create_task(_keep(recovery, settings)))
    for task in tasks:
        task.add_done_callback(_tell_defect)
    return tasks, recovery


async def _keep(recovery: AutoRecovery, settings: ReplicationSettings) -> None:
    """Run auto-recovery; if it cannot start, the bookie serves all the same and it is tried again."""
    while True:
        try:
            await recovery.run()
        except LedgerError as error:
            _LOGGER.warning("auto-recovery does not run, trying again: %s", error)
            await asyncio.sleep(settings.watch_s)


def _tell_defect(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        _LOGGER.critical("a repair task of this bookie ended; the bookie serves on", exc_info=task.exception())
