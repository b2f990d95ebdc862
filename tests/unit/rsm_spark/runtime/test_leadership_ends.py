"""How a leadership ended is told by its leader, or by what the next one saw in the election."""

from __future__ import annotations

import asyncio

import pytest

from ledger.testing.simulation import Simulation
from rsm_spark.core.chain import service_path
from rsm_spark.core.leadership_ends import (
    ElectionFinding,
    EndedLeadership,
    LeaderEnd,
    described_end,
    end_of,
    finding_metadata,
    finding_of,
)
from rsm_spark.log.ended_leaderships import ENDS_MAX, note_end, noted_ends
from rsm_spark.log.past_leaderships import PastLeadership, past_leaderships
from rsm_spark.testing.cluster import LOG
from rsm_spark.testing.ledger_twin import TwinClient
from tests.unit.rsm_spark.runtime.log_world import LogWorld, run

_NOTED = EndedLeadership(3, LeaderEnd.GAVE_UP, 1, "nothing was confirmed")
_SILENT = ElectionFinding(LeaderEnd.SILENT, "a" * 32)


@pytest.mark.parametrize(
    ("process", "noted", "finding", "end"),
    [
        ("a" * 32, _NOTED, _SILENT, (LeaderEnd.GAVE_UP, "nothing was confirmed")),
        ("a" * 32, None, _SILENT, (LeaderEnd.SILENT, "")),
        (None, None, _SILENT, (LeaderEnd.SILENT, "")),
        ("b" * 32, None, _SILENT, (LeaderEnd.UNKNOWN, "")),  # Somebody else stood there.
        ("b" * 32, None, ElectionFinding(LeaderEnd.NOT_IN_LINE), (LeaderEnd.NOT_IN_LINE, "")),
        ("a" * 32, None, None, (LeaderEnd.UNKNOWN, "")),
    ],
)
def test_the_leaders_own_word_counts_then_what_was_seen_of_it_and_of_nobody_else(
    process: str | None, noted: EndedLeadership | None, finding: ElectionFinding | None, end: tuple[LeaderEnd, str]
) -> None:
    assert end_of(process, noted, finding) == end


def test_ledgers_of_other_versions_tell_nothing() -> None:
    assert finding_of(finding_metadata(_SILENT)) == _SILENT
    assert finding_metadata(None) == {}
    for value in (b"", b"{", b'{"end":"abducted"}', b'{"end":7}'):
        assert finding_of({"rsm_leader_before": value}) is None
    assert finding_of({}) is None
    assert len({described_end(end) for end in LeaderEnd}) == len(LeaderEnd)


def test_the_newest_ends_are_kept_and_the_first_word_about_each_counts() -> None:
    simulation = Simulation(1)

    async def program() -> None:
        one, two = [await simulation.metadata.connect() for _ in range(2)]
        await note_end(one, LOG, _NOTED)  # The log is deleted: nothing of it comes again.
        assert await noted_ends(two, LOG) == {}
        await one.create(service_path(LOG), parents=True)
        many = [EndedLeadership(epoch, LeaderEnd.STOPPED, epoch) for epoch in range(ENDS_MAX + 5)]
        await asyncio.gather(*(note_end((one, two)[ended.epoch % 2], LOG, ended) for ended in many))
        await note_end(two, LOG, EndedLeadership(ENDS_MAX, LeaderEnd.GAVE_UP, 0, "once more"))
        assert await noted_ends(one, LOG) == {ended.epoch: ended for ended in many[5:]}
        (kept,) = [name for name in await one.children(service_path(LOG)) if name == "ended"]
        found = await one.get(f"{service_path(LOG)}/{kept}")
        await one.set(f"{service_path(LOG)}/{kept}", b"[{]", found.version)
        assert await noted_ends(one, LOG) == {}
        await note_end(one, LOG, _NOTED)
        assert await noted_ends(one, LOG) == {3: _NOTED}

    simulation.run(program(), limit_s=60)


async def _shown(world: LogWorld, limit: int | None = None) -> list[PastLeadership]:
    client = TwinClient(world.ledgers, world.store)
    return [one async for one in past_leaderships(client, LOG, "/rsm", limit)]  # type: ignore[arg-type]


async def _until_another_leads(world: LogWorld, before: str) -> None:
    await world.until(lambda: world.cluster.leader not in (None, before))


def test_a_leader_that_stops_gives_up_dies_or_stands_still_is_shown_with_that() -> None:
    async def scenario(world: LogWorld) -> None:
        cluster = world.cluster
        (first,) = await _shown(world)
        assert (first.before_ended, first.before_said) == (None, "")
        await world.add()

        host = world.leader_host
        host.spawn(world.leader.stop())
        await _until_another_leads(world, host.name)

        before = world.leader_host.name
        cluster.clients[before].is_cut_off = True  # From bookies, not from the metadata store.
        await _until_another_leads(world, before)
        cluster.clients[before].is_cut_off = False

        host = world.leader_host
        host.kill()
        await _until_another_leads(world, host.name)
        shown = await _shown(world)
        said = [(one.before_ended, one.before_said) for one in shown[1:]]
        assert said == [
            (LeaderEnd.STOPPED, "the replica stops"),
            (LeaderEnd.GAVE_UP, "nothing was confirmed for 5 s: another replica may reach more bookies"),
            (LeaderEnd.SESSION_ENDED, ""),
        ]
        assert await _shown(world, limit=1) == shown[-1:]

    run(scenario, give_up_s=5.0, idle_entry_s=0.5)


def test_every_ledger_of_a_leadership_tells_of_the_one_before() -> None:
    async def scenario(world: LogWorld) -> None:
        host = world.leader_host
        host.spawn(world.leader.stop())
        await _until_another_leads(world, host.name)
        await world.until_led()
        await world.roll()
        ledgers = (await world.chain()).ledgers
        told = [finding_of(world.ledgers.ledgers[one.ledger_id].metadata.custom) for one in ledgers]
        assert told[0] is not None
        assert told[0].end is LeaderEnd.NOT_IN_LINE
        epoch = ledgers[-1].leader_epoch
        last = [one for one, ledger in zip(told, ledgers, strict=True) if ledger.leader_epoch == epoch]
        assert len(last) == 2
        assert {one.end for one in last if one is not None} == {LeaderEnd.SESSION_ENDED}  # It saw it go, no more.

    run(scenario, roll_records=10)


def test_one_that_leads_again_after_its_session_was_lost_says_so_itself() -> None:
    async def scenario(world: LogWorld) -> None:
        host = world.leader_host
        epoch = (await world.chain()).leader_epoch
        world.simulation.metadata.expire(world.cluster.clients[host.name].store.session_id)
        await world.until(lambda: world.cluster.leader is None)
        async with asyncio.timeout(60):
            while (await world.chain()).leader_epoch == epoch or world.cluster.leader is None:
                await asyncio.sleep(0.1)
        shown = (await _shown(world))[-1]
        assert (shown.before_ended, shown.before_said) == (
            LeaderEnd.GAVE_UP, "the session with the metadata store is lost",
        )  # fmt: skip

    run(scenario, replica_count=1)
