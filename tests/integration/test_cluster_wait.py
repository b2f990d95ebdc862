"""`rsm cluster wait` on real bookies: one that was away gets what an open ledger has confirmed without it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger import LedgerClient
from ledger.dev import DevCluster
from ledger.replication.core.fragments import Share
from ledger.replication.core.held_entries import HeldEntries
from ledger.replication.questions import list_entries
from tests.integration.test_auto_recovery import auto_recovery
from tests.integration.test_decommission import rsm

pytestmark = pytest.mark.asyncio

_BATCH = 200
_FORGOTTEN_S = 1.5
"""A writer without a spare keeps what an absent bookie misses for a second."""


async def _rsm(cluster: DevCluster, *words: str) -> tuple[int, str, str]:
    code, out, said = await asyncio.to_thread(rsm, cluster, *words)
    return code, out, " ".join(said.split())


async def test_it_returns_when_a_bookie_that_was_away_holds_what_is_confirmed_in_an_open_ledger(
    start_cluster: Callable[..., DevCluster], tmp_path: Path
) -> None:
    cluster = start_cluster()
    code, _, said = await _rsm(cluster, "wait", "--for", "3")
    assert code == 6
    assert "nobody looks for lost copies" in said

    with auto_recovery(cluster.metadata_uri, tmp_path / "log") as (_, notice):
        code, out, said = await _rsm(cluster, "wait", "--for", "120", "--json")
        assert code == 0, said
        whole = {"is_whole": True, "bookies": 3, "ledgers": 0, "auditor": notice["owner"], "covers_open": True}
        assert json.loads(out) == whole

        async with await LedgerClient.connect(cluster.metadata_uri) as client:
            writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
            await writer.append_many([b"before"] * _BATCH)
            await asyncio.to_thread(cluster.kill_bookie, 2)
            away = cluster.bookies[2]
            await writer.append_many([b"without it"] * _BATCH)
            await asyncio.sleep(_FORGOTTEN_S)
            last = await writer.append_many([b"without it, too"] * _BATCH)

            code, out, said = await _rsm(cluster, "wait", "--for", "5", "--json")
            assert code == 6
            lacking = json.loads(out)["lacking"]
            assert away in lacking
            assert f"after 5 s still: {lacking}" in said

            await asyncio.to_thread(cluster.start_bookie, 2)
            code, out, said = await _rsm(cluster, "wait", "--for", "240", "--json", "--audit-file", f"{tmp_path}/audit")
            assert code == 0, said
            assert json.loads(out) == {**whole, "ledgers": 1}
            assert json.loads((tmp_path / "audit").read_text().splitlines()[0])["action"] == "rsm cluster wait"
            metadata = await client.metadata(writer.ledger_id, sync=True)
            answers = await list_entries(client._pool, writer.ledger_id, cluster.bookies)
            for position, bookie_id in enumerate(metadata.segments[0].bookies):
                held = answers[bookie_id]
                assert isinstance(held, HeldEntries)
                assert list(held.missing(Share(0, last, position, metadata.quorum))) == []
            assert (metadata.is_closed, len(metadata.segments)) == (False, 1)
            assert await writer.append(b"nobody has fenced it") == last + 1
            await writer.close()

        disable = [sys.executable, "-m", "ledger.replication", "disable", "--metadata-uri", cluster.metadata_uri]
        await asyncio.to_thread(subprocess.run, disable, check=True)
        code, _, said = await _rsm(cluster, "wait")
        assert code == 1
        assert "switched off for the cluster" in said
