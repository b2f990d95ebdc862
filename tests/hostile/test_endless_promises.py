"""Who asks bookies for promises without end, with the ledger's key and without, beside who takes the ledger over.

A fence that waited for every promise would never be answered here: nobody stops to ask. So what is judged are answers.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger import LedgerClient
from ledger.core.lease_promises import LEASE_MS_MAX
from ledger.dev import DevCluster
from ledger.wire.codes import FenceState, Status
from ledger.wire.digests import master_key
from ledger.wire.packets import FenceCheckRequest, ReadRequest
from tests.hostile.victim import Victim, Work
from tests.integration.bookie_process import KEY, Bookie, Client, add
from tests.integration.test_watched_bookies import metrics

_PASSWORD = b"mine"
_FOREIGN = master_key(b"foreign")
_FOR_EVER_MS = 2**31 - 1
_TAKE_OVERS, _PROMISES = 10, 2_000
_QUORUM: dict[str, Any] = {"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2}


class _Asker:
    """Asks one bookie for promises of the ledger that is written just now, a hundred questions at a time.

    Attributes:
        ledger_id: The ledger; none below 0.
        states: What the bookie said of each ledger, in order; the same again is left out.
        granted_ms: The longest promise.

    """

    def __init__(self, work: Work) -> None:
        self.ledger_id = -1
        self.states: dict[int, list[FenceState]] = {}
        self.granted_ms = 0
        self._work = work

    async def run(self, port: int) -> None:
        client = await Client.connect(port)
        try:
            while True:
                ledger_id = self.ledger_id
                if ledger_id < 0:
                    await asyncio.sleep(0.001)
                    continue
                asked = FenceCheckRequest(0, ledger_id, master_key(_PASSWORD), _FOR_EVER_MS)
                states = self.states.setdefault(ledger_id, [])
                for answer in await client.ask(*[asked] * 100):
                    if answer.status is not Status.EOK:
                        continue  # It has not heard of the ledger yet.
                    assert answer.state is FenceState.OPEN or not answer.lease_ms
                    self.granted_ms = max(self.granted_ms, answer.lease_ms)
                    if states[-1:] != [answer.state]:
                        states.append(answer.state)
                    self._work.add()
        finally:
            client.writer.close()


def test_a_take_over_ends_beside_who_has_the_key_and_asks_for_promises_without_end(cluster: DevCluster) -> None:
    async def scenario() -> None:
        async with (
            await LedgerClient.connect(cluster.metadata_uri) as client,
            await LedgerClient.connect(cluster.metadata_uri) as successor,
        ):
            work = Work()
            askers = [_Asker(work) for _ in cluster.state.bookies for _ in range(2)]

            async def take_over() -> None:
                """Begin a ledger, let everybody be promised that it is not fenced, and recover it."""
                writer = await client.create(password=_PASSWORD, **_QUORUM)
                await writer.append(b"first")
                for asker in askers:
                    asker.ledger_id = writer.ledger_id
                while tasks and not all(FenceState.OPEN in x.states.get(writer.ledger_id, ()) for x in askers):
                    await asyncio.sleep(0.001)
                reader = await successor.open(writer.ledger_id, password=_PASSWORD)
                assert reader.last_add_confirmed == 0

            pids = [cluster.pids()[bookie.name] for bookie in cluster.state.bookies]
            tasks: list[asyncio.Task[None]] = []
            victim = Victim(take_over, servers=pids)
            (await victim.run(_TAKE_OVERS)).assert_answered()
            loop = asyncio.get_running_loop()
            ports = [bookie.port for bookie in cluster.state.bookies for _ in range(2)]
            tasks += [loop.create_task(asker.run(port)) for asker, port in zip(askers, ports, strict=True)]
            attacked = await victim.run(_TAKE_OVERS, beside=work, units=_PROMISES)
            for task in tasks:
                assert not task.done(), task
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            print(attacked)
            attacked.assert_answered()
            for asker in askers:
                assert asker.granted_ms == LEASE_MS_MAX
                # Nobody is promised anything once a bookie is fenced.
                assert not [x for x in asker.states.values() if FenceState.FENCED in x[:-1]], asker.states

    asyncio.run(scenario())


@pytest.fixture
def bookie(zookeeper: str, tmp_path: Path, unique_name: str) -> Iterator[Bookie]:
    made = Bookie(zookeeper, tmp_path / "bookie", root=f"/{unique_name}")
    yield made
    made.kill()


def _fence(ledger_id: int, key: bytes = KEY) -> ReadRequest:
    return ReadRequest(0, ledger_id, 0, key, is_fencing=True)


def test_promises_are_neither_given_to_strangers_nor_do_those_of_other_ledgers_keep_a_fence_waiting(
    bookie: Bookie,
) -> None:
    address = bookie.start("--http-port", "0")["http_address"]

    def waited() -> float:
        return metrics(address)["rsm_bookie_waited_fences_total"]

    async def scenario() -> None:
        victim, stranger = await Client.connect(bookie.port), await Client.connect(bookie.port)
        numbers = itertools.count(100)
        while True:  # The bookie may wait for what was promised before it began.
            ledger_id, before = next(numbers), waited()
            await victim.ask(add(ledger_id, 0), _fence(ledger_id))
            if waited() == before:
                break
        await victim.ask(add(1, 0), add(2, 0))
        for ledger_id in (1, 3):  # One is there, one is not.
            for answer in await stranger.ask(*[FenceCheckRequest(0, ledger_id, _FOREIGN, _FOR_EVER_MS)] * 5_000):
                assert answer.status is not Status.EOK
                assert answer.state is FenceState.UNKNOWN
                assert answer.lease_ms == 0
        (own,) = await stranger.ask(FenceCheckRequest(0, 2, KEY, _FOR_EVER_MS))
        assert own.lease_ms == LEASE_MS_MAX
        for answer in await stranger.ask(*[_fence(1, _FOREIGN)] * 100):
            assert answer.status is Status.EUA
        assert waited() == before
        (answer,) = await victim.ask(_fence(1))
        assert answer.status is Status.EOK
        assert waited() == before, "a fence has waited for what nobody was promised"
        assert metrics(address)["rsm_bookie_promises_total"] == 1
        for client in (victim, stranger):
            client.writer.close()

    asyncio.run(scenario())
