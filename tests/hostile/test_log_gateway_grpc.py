"""Attackers at a gateway's gRPC port, beside a producer that goes on: foreign logs and ids, garbage, unread tails."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from ledger.dev import DevCluster
from tests.hostile.gateway_principals import SECRETS, principals_file
from tests.hostile.victim import Victim
from tests.integration.gateway_calls import GatewayRpc, refusal
from tests.integration.gateways import GatewayProcess

pytestmark = pytest.mark.asyncio

_CALLS = 60
_TAILS = 120


@contextlib.asynccontextmanager
async def _gateway(cluster: DevCluster, folder: Path) -> AsyncIterator[GatewayProcess]:
    more = ("--principals", principals_file(folder), "--grpc-port", "0")
    one = await GatewayProcess.start(cluster.metadata_uri, 0, *more)
    try:
        async with GatewayRpc(one.grpc_address, SECRETS["root"]) as root:
            for log in ("shared", "hers"):
                await root.call("Create", log=log)
        yield one
    finally:
        await one.stop()


async def _refused(asked: object) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await _answer(asked)
    return refusal(caught.value)


async def _answer(asked: Any) -> None:
    if not hasattr(asked, "__aiter__"):
        await asked
        return
    async for _ in asked:
        pass


async def test_a_stranger_gets_nothing_and_eve_nothing_of_anns(cluster: DevCluster, tmp_path: Path) -> None:
    name = f"till-{tmp_path.name}"
    async with _gateway(cluster, tmp_path) as one, GatewayRpc(one.grpc_address, SECRETS["ann"]) as ann:
        await ann.append("shared", name, 1, "honest")
        address = one.grpc_address
        async with GatewayRpc(address, SECRETS["eve"]) as eve, GatewayRpc(address) as nobody:
            for sequence in (1, 2):
                stolen = await _refused(eve.append("shared", name, sequence, "forged"))
                assert stolen == ("PERMISSION_DENIED", "foreign-producer")
            tried = [
                eve.append("hers", "eve", 1, "x"),
                eve.call("Read", log="hers"),
                eve.call("Tail", log="hers"),
                eve.call("Describe", log="hers"),
                eve.call("Create", log="hers"),
                eve.call("Grow", log="shared", partitions=2),
                eve.call("Truncate", log="shared", position=9),
                eve.call("Delete", log="shared"),
            ]
            assert {(await _refused(asked))[0] for asked in tried} == {"PERMISSION_DENIED"}
            assert list((await eve.call("List")).logs) == ["shared"]
            for asked in (nobody.call("List"), nobody.append("shared", "n", 1, "x"), nobody.call("Tail", log="shared")):
                assert (await _refused(asked))[0] == "UNAUTHENTICATED"
            for method in ("Append", "WriteBatch", "Read", "Tail", "Describe"):
                assert (await _refused(eve.send(method, b"\xff" * 100)))[0] == "INVALID_ARGUMENT"
            wrong = [
                eve.append("shared", "eve", 1),
                eve.append("shared", "eve", 1, "x", partitions=300),
                eve.call("WriteBatch", log="shared", writer="w", batch=1),
                eve.call("Read", log="shared", limit=10**6),
                eve.call("Read", log="shared", start="nowhere"),
                eve.call("Tail", log="shared", start="0:1,0:2"),
            ]
            assert {(await _refused(asked))[0] for asked in wrong} == {"INVALID_ARGUMENT"}
        await ann.append("shared", name, 2, "honest")


async def test_a_producer_goes_on_beside_tails_that_nobody_reads(cluster: DevCluster, tmp_path: Path) -> None:
    async with _gateway(cluster, tmp_path) as one, GatewayRpc(one.grpc_address, SECRETS["ann"]) as ann:
        sequence = 0

        async def append() -> None:
            nonlocal sequence
            sequence += 1
            await ann.append("hers", f"till-{tmp_path.name}", sequence, "honest")

        await append()
        calls = Victim(append, servers=[one.process.pid])
        quiet = await calls.run(_CALLS)
        async with GatewayRpc(one.grpc_address, SECRETS["eve"]) as eve:
            await eve.append("shared", f"eve-{os.getpid()}", 1, *["x" * 1000] * 2000)
            tails = [eve.call("Tail", log="shared", start="begin") for _ in range(_TAILS)]
            for tail in tails:
                await tail.initial_metadata()
            attacked = await calls.run(_CALLS)
            for tail in tails:
                tail.cancel()
        attacked.assert_goes_on_like(quiet)
