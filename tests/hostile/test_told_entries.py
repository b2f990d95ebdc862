"""Followers that ask their leader without end and read nothing: callers of that leader are answered all the same."""

from __future__ import annotations

import asyncio
import contextlib

from rsm_spark.core.position import LogPosition
from rsm_spark.transport.call_frames import CallHello, FrameKind, encode_frame, encode_hello
from rsm_spark.transport.tail_codec import FOLLOW_METHOD, encode_follow
from tests.hostile.port_attacks import flooding
from tests.hostile.replica_port_process import ReplicaPortProcess
from tests.hostile.victim import Served, Victim, Work, resident_mib
from tests.unit.rsm_spark.transport.framed_caller import calling
from tests.unit.rsm_spark.transport.test_replica_server import message

_CALLS = 60
_BLOCKS = 60
_BLOCKS_A_CALL = 3_000
"""Most blocks go no further than the system's buffers."""
_HELLO = encode_hello(CallHello(FOLLOW_METHOD))
_ASKED = encode_frame(FrameKind.MESSAGE, encode_follow("orders", LogPosition(1, 0))) * 2_000
"""Each question is answered with a quarter of a MiB."""
_GROWN_MIB_MAX = 400


async def _call(address: str) -> None:
    """Call over a new connection, as who comes for the first time; tried again, as clients do."""
    while True:
        with contextlib.suppress(OSError, AssertionError):
            async with calling(address) as caller:
                await caller.begin()
                await caller.ask(message(1, commands=0, queries=1, opens=False))
                return
        await asyncio.sleep(0.02)


def test_callers_are_answered_beside_followers_that_ask_without_end_and_never_read() -> None:
    with ReplicaPortProcess() as port:
        address = "{}:{}".format(*port.framed)

        def served(beside: Work | None, units: int) -> Served:
            victim = Victim(lambda: _call(address), servers=[port.pid])
            return asyncio.run(victim.run(_CALLS, beside=beside, units=units))

        work = Work()
        quiet = served(None, 0)
        with flooding(port.framed, lambda: _HELLO, lambda _: _ASKED, work):
            attacked = served(work, _BLOCKS)
            grown = resident_mib(port.pid)
        attacked.assert_goes_on_like(quiet, units_per_call=_BLOCKS_A_CALL, cpu=100.0)
        assert grown < _GROWN_MIB_MAX, f"{grown:.0f} MiB"
        assert port.errors() == ""
