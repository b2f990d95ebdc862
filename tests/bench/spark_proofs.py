"""What proofs cost: a log of many keys proved by Spark, snapshotted, and brought back from the lake alone.

`verify_per_s`: records of a log, with the checkpoints that its leader logged, linked, folded and compared, by the wall
time of the whole proof but for the start of Spark. `verify_cpu_us`: what the JVM and its Python processes use a record.
`log_snapshot_s`: the state to the lake from the log alone.
`resurrect_s`: from the start of a replica without a disk until it has the state: lake snapshot, then the log behind.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from pyspark.sql import SparkSession

from connectors.state.snapshot import snapshot_log
from connectors.state.verify import VerifySettings, verify_log
from ledger.dev.cluster import DevCluster
from rsm_demo.child import Child
from tests.bench.figure import say
from tests.bench.spark_reads import spark_cpu_s
from tests.bench.store_boot import _boot, load_keys
from tests.bench.store_load import start_replica

__all__ = ["LOG", "measure_proofs"]

LOG = "bench-boot"
_NO_SNAPSHOTS = ("--snapshot-s", "0", "--snapshot-bytes", "0")


async def measure_proofs(
    spark: SparkSession, cluster: DevCluster, folder: Path, *, key_count: int = 1_000_000, rounds: int = 3
) -> dict[str, list[float]]:
    """Return the figures of the module, one a round; of `resurrect_s` and `log_snapshot_s` one.

    Args:
        spark: Session.
        cluster: Bookies and metadata store.
        folder: For replicas and the lake.
        key_count: Keys of 256 bytes.
        rounds: Of the proof.

    """
    source = {"metadataUri": cluster.metadata_uri}
    lake = str(folder / "lake")

    async def start(name: str, *options: str) -> Child:
        return await start_replica(name, cluster, folder, *options, log=LOG)

    leader = await start("loader", *_NO_SNAPSHOTS)
    figures: dict[str, list[float]] = {"verify_per_s": [], "verify_cpu_us": []}
    try:
        revision, _ = await load_keys(cluster.metadata_uri, key_count)
        for number in range(rounds):
            say(f"  proof {number + 1} of {rounds}")
            before = spark_cpu_s(spark)
            verdict = await asyncio.to_thread(verify_log, spark, VerifySettings(LOG, source=source))
            assert verdict.ok, verdict.differences
            figures["verify_per_s"].append(verdict.records_per_s)
            figures["verify_cpu_us"].append((spark_cpu_s(spark) - before) / verdict.covered.last_revision * 1e6)
        say("  snapshot from the log alone")
        made = await asyncio.to_thread(snapshot_log, spark, LOG, lake, at_checkpoint=True, source=source)
        figures["log_snapshot_s"] = [made.seconds]
        await leader.stop()
        shutil.rmtree(folder / "loader")
        say("  boot from the lake, no replica's disk left")
        seconds, fresh = await _boot(start, "fresh", revision, "--lake", lake)
        figures["resurrect_s"] = [seconds]
        await fresh.stop()
    finally:
        await leader.stop()
        for name in ("loader", "fresh", "lake"):
            shutil.rmtree(folder / name, ignore_errors=True)
    return figures
