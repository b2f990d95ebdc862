"""Where new ledgers go: by what bookies say of their room, by racks, past those that fail."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from ledger.client.racks import read_racks
from ledger.errors import NotEnoughBookiesError, UsageError
from ledger.wire.packets import InfoRequest
from tests.unit.ledger.client.fake_cluster import FakeCluster, run


async def ensembles(cluster: FakeCluster, count: int, **shape: int) -> list[tuple[str, ...]]:
    found = []
    for _ in range(count):
        writer = await cluster.client.create(**shape)  # type: ignore[arg-type]
        found.append(writer.metadata.segments[-1].bookies)
        writer.abandon()
    return found


def test_new_ledgers_are_spread_over_all_bookies() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        used = Counter(bookie_id for ensemble in await ensembles(cluster, 40) for bookie_id in ensemble)
        assert len(used) == 4
        assert max(used.values()) < 35

    run(scenario)


def test_by_free_space_bookies_are_asked_now_and_then_and_the_roomy_get_more() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        for bookie in cluster.bookies.values():
            bookie.free_bytes = 1 << 30
        cluster["b2"].free_bytes = 1 << 40
        cluster["b3"].free_bytes = 0
        used = Counter(bookie_id for ensemble in await ensembles(cluster, 40) for bookie_id in ensemble)
        assert used["b3:3181"] == 0
        assert used["b2:3181"] > max(used["b0:3181"], used["b1:3181"])
        assert sum(isinstance(request, InfoRequest) for request in cluster["b0"].requests) == 1
        cluster["b3"].free_bytes = 1 << 42
        await asyncio.sleep(61)
        used = Counter(bookie_id for ensemble in await ensembles(cluster, 20) for bookie_id in ensemble)
        assert used["b3:3181"] > 0

    run(scenario, placement="free-space")


def test_by_free_space_a_silent_bookie_does_not_hold_up_a_creation() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        cluster.simulation.host("b1").pause()
        started = asyncio.get_running_loop().time()
        for _ in range(10):
            await cluster.client.create(ensemble_size=1, write_quorum=1, ack_quorum=1)
        assert asyncio.get_running_loop().time() - started < 2.0

    run(scenario, placement="free-space")


def test_by_rack_every_ledger_lies_in_two_racks_also_after_a_replacement() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        racks = {"b0": "a", "b1": "a", "b2": "a", "b3": "a", "b4": "b", "b5": "b"}

        def rack_count(bookies: tuple[str, ...]) -> int:
            return len({racks[bookie_id.partition(":")[0]] for bookie_id in bookies})

        assert {rack_count(ensemble) for ensemble in await ensembles(cluster, 30)} == {2}
        writer = await cluster.client.create()
        old = writer.metadata.segments[-1].bookies
        lonely = next(bookie_id for bookie_id in old if bookie_id.startswith(("b4", "b5")))
        cluster.kill(lonely)
        await writer.append(b"x")
        bookies = writer.metadata.segments[-1].bookies
        assert lonely not in bookies
        assert rack_count(bookies) == 2

    run(
        scenario,
        bookie_count=6,
        placement="rack",
        racks={"b0": "a", "b1": "a", "b2:3181": "a", "b3": "a", "b4": "b", "b5:3181": "b"},
    )


def test_a_bookie_that_failed_a_moment_ago_is_left_out_while_there_are_others() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        writer = await cluster.client.create()
        victim = writer.metadata.segments[-1].bookies[0]
        cluster.kill(victim)
        await writer.append(b"x")
        assert victim not in {bookie_id for ensemble in await ensembles(cluster, 20) for bookie_id in ensemble}
        assert victim in (await ensembles(cluster, 1, ensemble_size=4))[0]

    run(scenario)


def test_too_few_bookies_are_one_clear_error() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        with pytest.raises(NotEnoughBookiesError, match="cannot place a ledger on 5 bookies: 4 are writable"):
            await cluster.client.create(ensemble_size=5)

    run(scenario)


def test_racks_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "racks"
    path.write_text("# bookie  rack\n\n10.0.0.1  /row1/a  # new\nhost:3181\t/row2\n")
    assert read_racks(path) == {"10.0.0.1": "/row1/a", "host:3181": "/row2"}


@pytest.mark.parametrize(
    ("text", "said"), [("one\n", "line 1: need"), ("a b c", "line 1"), ("a r1\n\na r2", "line 3: a is in r1")]
)
def test_a_bad_line_of_racks_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "racks"
    path.write_text(text)
    with pytest.raises(UsageError, match=said):
        read_racks(path)


def test_a_file_of_racks_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere"):
        read_racks(tmp_path / "nowhere")
