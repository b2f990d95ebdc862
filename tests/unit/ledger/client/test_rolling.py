"""When no bookie is left to take a dead one's place, appending goes on in the next ledger."""

from __future__ import annotations

import pytest

from ledger.client.rolling import LedgerRun, RollingAppender
from ledger.client.write_handle import WriteHandle
from ledger.errors import FencedError, LedgerError
from tests.unit.ledger.client.fake_cluster import FakeCluster, run


def test_what_was_not_confirmed_goes_into_the_next_ledger_once_and_in_order() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        await cluster.deregister("b2:3181")
        first = await cluster.client.create()
        victim, other = first.metadata.segments[-1].bookies
        rolls: list[tuple[LedgerRun, str, int, int]] = []

        def on_roll(run: LedgerRun, error: LedgerError, next_id: int, again_count: int) -> None:
            rolls.append((run, type(error).__name__, next_id, again_count))

        async def create() -> WriteHandle:
            await cluster.deregister(victim)
            await cluster.register("b2:3181")
            return await cluster.client.create()

        appender = RollingAppender(first, create, on_roll)
        for number in range(60):
            if number == 30:
                cluster.kill(victim)
            await appender.append([b"%03d" % (3 * number + i) for i in range(3)])
        runs = await appender.finish()
        assert appender.confirmed_count == 180
        assert [run.entry_count for run in runs] == [rolls[0][0].entry_count, 180 - rolls[0][0].entry_count]
        assert (rolls[0][1], rolls[0][2]) == ("QuorumLostError", runs[1].ledger_id)
        assert rolls[0][0] == runs[0]
        read = [
            cluster[other].entries[run.ledger_id, entry_id][-3:] for run in runs for entry_id in range(run.entry_count)
        ]
        assert read == [b"%03d" % number for number in range(180)]

    run(scenario, bookie_count=3, in_flight_bytes_max=60)


def test_a_ledger_that_somebody_else_recovers_is_no_reason_to_go_on() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create()

        async def create() -> WriteHandle:
            raise AssertionError("a fenced writer must stop")

        appender = RollingAppender(writer, create)
        await appender.append([b"x"])
        await writer.flush()
        writer._carry_out(writer._core.freeze(FencedError("fenced")))
        with pytest.raises(FencedError):
            await appender.append([b"y"])
        assert [run.last_entry_id for run in await appender.abort()] == [0]

    run(scenario)
