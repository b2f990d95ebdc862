"""A snapshot of waiting tasks, taken as a replica takes one: rows frozen, Parquet files written and fsynced."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from broker.machine.commands import SubmitTasks, TaskSpec
from broker.machine.machine import BrokerMachine
from broker.machine.messages import encode
from rsm_spark.core.state import ReplicatedState
from rsm_spark.snapshots.local import LocalSnapshots
from rsm_spark.snapshots.manifest import SnapshotManifest

_BATCH = 1_000
_NOW_MS = 1_700_000_000_000


def measure_snapshot(task_count: int, folder: Path) -> tuple[float, float]:
    """Return the size in MB and the seconds that a snapshot of so many waiting tasks takes."""
    state = ReplicatedState(BrokerMachine(), bytes(16))
    for first in range(0, task_count, _BATCH):
        tasks = [TaskSpec("nothing", f"{number:0>100}".encode()) for number in range(first, first + _BATCH)]
        command = encode(SubmitTasks(f"tenant-{first % 100}", tasks))
        for record_type, fields in state.machine.decide(command, state.revision + 1, _NOW_MS + first).records:
            state.fold(record_type, None, fields, _NOW_MS + first)
    state.settle()
    place = folder / "snapshots"
    began = time.perf_counter()
    written = LocalSnapshots(place).write(_manifest(state), state.rows())
    seconds = time.perf_counter() - began
    shutil.rmtree(place)
    return sum(file.bytes for file in written.files) / 1e6, seconds


def _manifest(state: ReplicatedState) -> SnapshotManifest:
    return SnapshotManifest(
        log_name="bench",
        log_id=state.log_id.hex(),
        revision=state.revision,
        ledger_id=1,
        entry_id=1,
        prefix_hash=state.prefix_hash.hex(),
        digest=f"{state.digest:032x}",
        row_count=state.row_count,
        leader_epoch=1,
        logged_ms=_NOW_MS,
        created_ms=_NOW_MS,
        machine=state.machine.description,
    )
