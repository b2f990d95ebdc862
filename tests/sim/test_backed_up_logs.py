"""Backups of simulated logs that are written, rolled and handed over meanwhile: none lacks its tail.

* `backup`   a backup holds every record that was acknowledged before it began, and its entries are the log's
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rsm_spark.backup import creating
from rsm_spark.backup.creating import LogBackup
from rsm_spark.backup.history import BackupHistory
from rsm_spark.backup.manifest import BackupError, BackupManifest
from rsm_spark.backup.place import BackupPlace
from rsm_spark.core.chain import DEFAULT_RSM_ROOT, LogChain
from rsm_spark.core.position import LogPosition
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.commit_log import LogReader
from rsm_spark.testing.cluster import LOG
from rsm_spark.testing.ledger_twin import TwinClient
from tests.unit.rsm_spark.runtime.log_world import LogWorld, run

_SEEDS = 8
_BACKUPS = 6


class _Broken(Exception):
    """A promise that was not kept."""


async def _inline(work: Callable[..., Any], *arguments: Any) -> Any:
    return work(*arguments)


def _run_seeds(count: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    return sum(_run_seed(seed, folder, monkeypatch) for seed in range(count))


def _run_seed(seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run one seed; return how many backups were made."""
    rng, made = random.Random(seed), 0
    # Threads have no virtual time.
    monkeypatch.setattr(asyncio, "to_thread", _inline)

    async def write(world: LogWorld) -> None:
        while True:
            await world.add(rng.randrange(9))
            await asyncio.sleep(rng.choice((0.0, 0.001, 0.05)))

    async def scenario(world: LogWorld) -> None:
        nonlocal made
        session = await world.simulation.metadata.connect(session_timeout_ms=10_000)
        client: Any = TwinClient(world.ledgers, session)
        place = BackupPlace(str(folder / str(seed)))
        writing = asyncio.get_running_loop().create_task(write(world))
        try:
            for _ in range(_BACKUPS):
                await asyncio.sleep(rng.uniform(0.05, 2.0))
                acknowledged = world.leader.revision
                try:
                    outcome = await LogBackup(client, LOG, rsm_root=DEFAULT_RSM_ROOT, place=place, supply=None).make()
                except BackupError:
                    continue
                made += 1
                await _judge(client, place, outcome.manifest, acknowledged)
        finally:
            writing.cancel()

    run(scenario, seed=seed, roll_bytes=rng.choice((2_000, 20_000, 1 << 20)), limit_s=600.0)
    return made


async def _judge(client: Any, place: BackupPlace, manifest: BackupManifest, acknowledged: int) -> None:
    """Compare a backup with the log.

    Raises:
        _Broken: It lacks something, or holds something else.

    """
    if manifest.last_revision < acknowledged:
        raise _Broken(
            f"it ends with revision {manifest.last_revision}, {acknowledged} was acknowledged before it began"
        )
    ledger_id = manifest.ledgers[0].ledger_id
    reader = LogReader(
        client,
        ChainStore(client.store, LOG, DEFAULT_RSM_ROOT),
        password=None,
        position=LogPosition(ledger_id, -1),
    )
    logged: list[bytes] = []
    try:
        while reader.revision < manifest.last_revision:
            logged += [entry.payload for entry in await reader.read()]
    finally:
        await reader.close()
    copied = [entry.payload for entry in BackupHistory(place, manifest).entries(manifest.segments)]
    if copied != logged[: len(copied)]:
        raise _Broken("its entries are not those of the log")


def test_no_backup_lacks_what_was_acknowledged_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = _run_seeds(_SEEDS, tmp_path, monkeypatch)
    assert made > _SEEDS * _BACKUPS // 2


def _asks_closed_ledgers_alone(patch: pytest.MonkeyPatch) -> None:
    """The end of the ledger that is being written is not asked for."""

    async def ask(_self: LogBackup, chain: LogChain) -> creating._Tail:
        ids, last = frozenset(one.ledger_id for one in chain.ledgers), chain.ledgers[-1]
        return creating._Tail(ids, LogPosition(last.ledger_id, -1), last.first_revision - 1)

    patch.setattr(LogBackup, "_ask_tail", ask)


def _ends_with_a_file(patch: pytest.MonkeyPatch) -> None:
    """A backup ends with the first file, and nobody looks how far it goes."""
    copy = LogBackup._copy_segment

    async def copy_one(self: LogBackup, reader: LogReader) -> bool:
        await copy(self, reader)
        self._tail = self._tail._replace(revision=0)
        return False

    patch.setattr(LogBackup, "_copy_segment", copy_one)
    patch.setattr(creating, "_SEGMENT_BYTES", 2_000)
    patch.setattr(creating, "_ENTRIES_MAX", 4)


@pytest.mark.parametrize("plant", [_asks_closed_ledgers_alone, _ends_with_a_file])
def test_planted_bugs_of_backups_are_found(
    plant: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(_Broken, match="was acknowledged before it began"):
        _run_seeds(2 * _SEEDS, tmp_path, monkeypatch)
