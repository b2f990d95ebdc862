"""A log of three releases of a user's machine, as replicas wrote it: Spark proves it, and reads it at any revision."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from connectors.state.frame import state_as_of
from connectors.state.verify import VerifySettings, verify_log
from ledger.dev import DevCluster
from rsm_spark import ReplicaSettings
from rsm_spark.errors import InvalidCommandError
from rsm_spark.testing import LocalCluster
from tests.integration.rolled_bank import Bank1, Bank2, Bank3

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS = ReplicaSettings(checkpoint_records=10)


async def _roll(metadata_uri: str, log: str) -> tuple[list[int], dict[str, Any]]:
    """Write with each release; return the revision after each, and what a replica says in the end."""
    ends: list[int] = []
    async with LocalCluster(Bank1, replicas=2, metadata_uri=metadata_uri, log=log, settings=_SETTINGS) as bank:
        async with await bank.client() as client:
            number = 0
            for release in (Bank1, Bank2, Bank3):
                for name in bank.replicas if release is not Bank1 else ():
                    await bank.stop(name)
                    await bank.start(name, release)
                for _ in range(20):
                    number += 1
                    revision = (await client.execute(b"acc%d %d" % (number % 7, number))).revision
                while release is Bank2:  # Refused until the log is of version 2.
                    try:
                        revision = (await client.execute(b"ann %d a@x" % number)).revision
                        break
                    except InvalidCommandError:
                        await asyncio.sleep(0.05)
                ends.append(revision)
            while (await bank.status(await bank.leader()))["log_version"] < 3:
                await asyncio.sleep(0.05)
            await client.execute(b"bob 70")
        await bank.agree()
        return ends, await bank.status("a")


def test_a_log_of_three_releases_is_proved_and_read_at_any_revision(
    spark: SparkSession, cluster: DevCluster, unique_name: str
) -> None:
    ends, said = asyncio.run(_roll(cluster.metadata_uri, unique_name))
    source = {"metadataUri": cluster.metadata_uri}
    verdict = verify_log(spark, VerifySettings(unique_name, source=source))
    assert verdict.ok, verdict.differences
    assert verdict.checkpoints >= 3
    assert (verdict.covered.last_revision, verdict.digest) == (said["revision"], said["digest"])
    counts = [
        state_as_of(spark, unique_name, end, source=source).where("table_name = 'accounts'").count() for end in ends
    ]
    assert counts == [7, 8, 8]
    frame = spark.read.format("ledger").options(**source, log=unique_name, rows="table", table="accounts").load()
    ann, bob = (frame.where(f"account = '{name}'").select("times", "email", "limit").first() for name in ("ann", "bob"))
    assert (tuple(ann), tuple(bob)) == ((1, "a@x", None), (1, None, 100))
