"""`rsm log consumers` on a real ZooKeeper, with a leader that trims: who has not read, keeps."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ledger.dev import DevCluster
from ledger.exit_codes import ExitCode
from rsm_spark.errors import InvalidCommandError
from rsm_spark.log.consumers import ConsumerError
from rsm_spark.map.client.client import MapClient
from tests.integration.test_backup import served
from tests.integration.test_log_fork import ForkCommand

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(1200)]

_WAIT_S = 600
"""Each look is a command of its own, which takes seconds where a machine has other work: only what hangs is ended."""
_PACE = ("--roll-records", "100", "--retention-s", "0", "--trim-s", "0.3", "--trim-single-copy")


class _ConsumersCommand(ForkCommand):
    async def consumers(self, what: str, log: str, *arguments: str) -> dict[str, object]:
        return await self.done("log", "consumers", what, log, *arguments, *self.where)

    async def trimmed_until(self, log: str, reason: str) -> dict[str, Any]:
        """Trim again and again, until the oldest ledger that stays does so for a reason."""
        async with asyncio.timeout(_WAIT_S):
            while True:
                answer = await self.log("trim", log, "--accept-unverified")
                if answer["blocked"][0]["reason"] == reason:
                    return answer
                await asyncio.sleep(0.3)

    async def consumers_refused(self, what: str, log: str, *arguments: str) -> str:
        code, _, errors = await self.run("log", "consumers", what, log, *arguments, *self.where)
        assert code in set(ExitCode), errors
        return errors


async def _puts(log: str, uri: str, count: int) -> int:
    async with await MapClient.connect(log, uri) as client:
        revisions = await asyncio.gather(*(client.put(b"k%d" % number, b"v") for number in range(count)))
    return max(revisions)


async def test_a_log_is_kept_for_a_consumer_until_it_has_read_it_or_is_removed(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    commands = _ConsumersCommand(uri, tmp_path)
    audit = ("--audit-file", str(tmp_path / "audit"))
    async with served(uri, log, tmp_path / "live", *_PACE, "--snapshot-s", "1", "--verify-s", "0.5"):
        added = await commands.consumers("add", log, "export", "--what", "nightly export", *audit)
        assert added == {"log": log, "name": "export", "revision": 0}
        end = await _puts(log, uri, 500)
        kept = await commands.trimmed_until(log, "unread")
        rehearsed = await commands.log("trim", log, "--accept-unverified", "--dry-run")
        assert (rehearsed["ledger_ids"], kept["ledger_ids"]) == ([], [])
        assert kept["blocked"][0]["reason"] == "unread"
        assert "consumer export (nightly export) has read up to revision 0" in kept["blocked"][0]["text"]
        described = await commands.log("info", log)
        (one,) = described["consumers"]
        assert one["held_ledgers"] == [item["ledger_id"] for item in described["ledgers"] if "closed" in item]
        assert one["held_bytes"] == sum(item["closed"]["length"] for item in described["ledgers"] if "closed" in item)
        assert one["held_until_ms"] > described["ledgers"][0]["closed"]["last_entry_ms"]

        first = described["ledgers"][0]["closed"]["last_revision"]
        assert (await commands.consumers("move", log, "export", str(first)))["moved"] is True
        assert (await commands.consumers("move", log, "export", "0"))["moved"] is False
        went = await commands.trimmed_until(log, "unread")
        assert (await commands.log("info", log))["first_revision"] == first + 1, went

        assert "known: export" in await commands.consumers_refused("remove", log, "nobody")
        await commands.consumers("remove", log, "export", "--reason", "gone for good", *audit)
        await commands.trimmed_until(log, "current")
        described = await commands.log("info", log)
        assert described["first_revision"] > first + 1
        assert described["consumers"] == []
        assert "gone for good" in (tmp_path / "audit").read_text()
        late = await commands.consumers("add", log, "late")
        assert late["revision"] == described["first_revision"] - 1
        assert end > 0
    deleted = await commands.log("delete", log, "--yes")
    assert deleted["consumers"] == ["late"]


async def test_a_watch_goes_on_where_its_consumer_stands_and_the_log_is_held_for_it(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    commands = _ConsumersCommand(uri, tmp_path)
    async with served(uri, log, tmp_path / "live", *_PACE, "--snapshot-s", "1", "--verify-s", "0.5"):
        before = await _puts(log, uri, 5)
        async with await MapClient.connect(log, uri) as client:
            watch = client.watch(prefix=b"k", consumer="billing")
            first = asyncio.create_task(anext(watch))
            async with asyncio.timeout(_WAIT_S):
                while not (found := (await commands.log("info", log))["consumers"]):
                    await asyncio.sleep(0.1)
            assert found[0]["name"] == "billing"
            assert found[0]["what"].startswith("watch, process ")
            await _puts(log, uri, 300)
            change = await first
            assert change.revision > before
            last = [await anext(watch) for _ in range(99)][-1]
            await client.processed("billing", last.revision)
            await watch.aclose()
            with pytest.raises(ConsumerError, match="no watch of this client"):
                await client.processed("other", 1)
        await commands.trimmed_until(log, "unread")
        async with await MapClient.connect(log, uri) as client:
            watch = client.watch(prefix=b"k", consumer="billing")
            again = [await anext(watch) for _ in range(200)]
            assert again[0].revision == last.revision + 1
            assert len({one.key for one in again}) == 200
            await client.processed("billing", again[-1].revision)
            await watch.aclose()
        await commands.trimmed_until(log, "current")
        async with await MapClient.connect(log, replica="127.0.0.1:1") as client:
            with pytest.raises(InvalidCommandError, match="no metadata store"):
                client.watch(consumer="billing")
