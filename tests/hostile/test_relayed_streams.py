"""Streams that are passed on, of callers that send without end and read nothing: others are passed on all the same."""

from __future__ import annotations

import asyncio
import contextlib

from rsm_spark.transport.call_frames import CallHello, encode_hello
from rsm_spark.transport.relay_codec import RELAY_METHOD
from tests.hostile.port_attacks import flooding
from tests.hostile.replica_port_process import ReplicaPortProcess
from tests.hostile.victim import Served, Victim, Work, resident_mib
from tests.unit.rsm_spark.transport.framed_caller import calling, requests
from tests.unit.rsm_spark.transport.test_replica_server import message

_CALLS = 40
_BLOCKS = 60
_BLOCKS_A_CALL = 3_000
"""Most blocks go no further than the system's buffers."""
_HELLO = encode_hello(CallHello(RELAY_METHOD))
_ASKED = requests(message(1, commands=0, queries=200, opens=False)) * 20
_GROWN_MIB_MAX = 400


async def _call(address: str) -> None:
    """Call by way of the follower over a new connection; tried again, as clients do."""
    while True:
        with contextlib.suppress(OSError, AssertionError):
            async with calling(address) as caller:
                await caller.begin(RELAY_METHOD)
                await caller.ask(message(1, commands=0, queries=1, opens=False))
                return
        await asyncio.sleep(0.02)


def test_callers_are_passed_on_beside_some_that_send_without_end_and_never_read() -> None:
    with ReplicaPortProcess() as leader, ReplicaPortProcess(leader=leader) as follower:
        address = "{}:{}".format(*follower.framed)

        def served(beside: Work | None, units: int) -> Served:
            victim = Victim(lambda: _call(address), servers=[leader.pid, follower.pid])
            return asyncio.run(victim.run(_CALLS, beside=beside, units=units))

        work = Work()
        quiet = served(None, 0)
        with flooding(follower.framed, lambda: _HELLO, lambda _: _ASKED, work):
            attacked = served(work, _BLOCKS)
            grown = max(resident_mib(leader.pid), resident_mib(follower.pid))
        attacked.assert_goes_on_like(quiet, units_per_call=_BLOCKS_A_CALL, cpu=400.0)
        assert grown < _GROWN_MIB_MAX, f"{grown:.0f} MiB"
        assert follower.errors() == leader.errors() == ""
