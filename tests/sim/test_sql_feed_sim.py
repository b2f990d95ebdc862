"""The change feed of SQL tables over failovers: each confirmed change is told once, in order, and nothing else is.

Planted bugs must be found.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ledger.testing.loop import SimulationError
from rsm_spark.errors import RsmError
from rsm_spark.runtime.change_feed import FeedEntry
from rsm_spark.runtime.leading import LeaderDriver
from rsm_spark.sql.feed import desk
from rsm_spark.sql.feed.desk import FeedDesk
from rsm_spark.sql.feed.events import SqlFeedRequest, SqlFeedSlice
from rsm_spark.sql.feed.telling import ToldTables
from rsm_spark.sql.machine import SqlMachine
from rsm_spark.sql.records import CatalogRow
from rsm_spark.testing.ghosts import BrokenInvariantError
from rsm_spark.testing.simulating import _quiet, _Run
from tests.sets import hunt_order
from tests.sim.ledger_seeds import first_seed
from tests.sim.sql_disks import drawn_command, with_disks
from tests.sim.sql_feeds import SimChangeStream, SimFeeds
from tests.unit.rsm_spark.sql.fed_copy import without_sequences
from tests.unit.rsm_spark.sql.sql_pair import contents

_SEEDS = 6


class ForgetfulTables(SqlMachine):
    """Remembers few changes of the schema: what the tables were comes from snapshots and the log."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._writer.history._notes_max = 1


def run_feed_seed(
    seed: int, folder: Path, stream: type[SimChangeStream] = SimChangeStream, trouble_s: float = 8.0
) -> Counter[str]:
    """Run one seed; raise what is broken."""
    folder.mkdir()
    rng = random.Random(seed)
    run = _Run(seed, lambda: None, drawn_command, lambda _machine: None, trouble_s, None)  # type: ignore[arg-type, return-value]
    disks = with_disks(run.cluster, folder, rng, ForgetfulTables)
    feeds = SimFeeds(run.cluster, rng, folder / "pasts", stream)

    async def main() -> None:
        reading = [asyncio.get_running_loop().create_task(one.run()) for one in feeds.readers]
        await run.main()
        for one in feeds.readers:
            one.pause_s = min(one.pause_s, 1.0)  # Who is away for long reads a few changes in between.
        await run._until(lambda: all(one.is_at_end for one in feeds.readers), "readers are told everything")
        for task in reading:
            task.cancel()
        (machine, *_) = [one._context.machine for one in run.cluster.replicas.values()]
        if feeds.copy.contents() != without_sequences(contents(machine.path)):  # type: ignore[attr-defined]
            run.cluster.ghosts.fail("fed-copy", "a copy that is fed by the changes differs")

    slice_bytes, desk.SLICE_BYTES = desk.SLICE_BYTES, rng.choice((1, 300, desk.SLICE_BYTES))
    try:
        with _quiet():
            run.simulation.run(main(), limit_s=trouble_s + 900)
    finally:
        desk.SLICE_BYTES = slice_bytes
        for disk in disks:
            disk.close()
    return run.nemesis.counts + Counter(
        seen=sum(one.seen_count for one in feeds.readers),
        skipped=sum(one.skipped_count for one in feeds.readers),
        log_reads=sum(one.log_reads for one in feeds.feeds),
        pasts=sum(one.opened_count for one in feeds.pasts),
    )


@pytest.mark.parametrize("seed_count", [_SEEDS, pytest.param(300, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_each_confirmed_change_is_told_once_whatever_fails(tmp_path: Path, seed_count: int) -> None:
    counts: Counter[str] = Counter()
    for number in range(seed_count):
        counts += run_feed_seed(first_seed() + number, tmp_path / str(number))
    print(dict(counts))
    assert counts["seen"] > 10 * seed_count, "too little for this to mean anything"
    assert counts["log_reads"] > seed_count
    assert counts["pasts"] > 0, "nothing comes from snapshots and the log"


class _ForgetsItsPlace(SimChangeStream):
    """Planted: behind a lost connection the last slice is told again."""

    _slice = 0

    async def _told(self, address: str, framed: str) -> Any:
        if self._slice:
            self.revision, self._begin = self._slice - 1, self._slice
        async for one in super()._told(address, framed):
            if one.changes:
                self._slice = one.changes[0].revision
            yield one

    def asked(self) -> SqlFeedRequest:
        return msgspec.structs.replace(self._request, begin=self._begin)


def _tells_what_is_not_confirmed(patch: pytest.MonkeyPatch) -> None:
    """An entry is told when the leader writes it."""
    append = LeaderDriver._append

    async def _append(self: LeaderDriver, payload: bytes) -> Any:
        self._context._keep(payload)
        return await append(self, payload)

    patch.setattr(LeaderDriver, "_append", _append)


def _cuts_transactions(patch: pytest.MonkeyPatch) -> None:
    """The last change of a slice counts as the last of its transaction."""
    slices = desk._slices

    def _slices(teller: ToldTables, entry: FeedEntry, begin: int) -> Iterator[SqlFeedSlice]:
        for one in slices(teller, entry, begin):
            *before, last = one.changes
            yield SqlFeedSlice((*before, msgspec.structs.replace(last, is_last=True)), one.up_to)

    patch.setattr(desk, "_slices", _slices)


def _goes_too_far(patch: pytest.MonkeyPatch) -> None:
    """Each slice of an entry says that there is no more of the entry: what is behind is lost with the connection."""
    slices = desk._slices

    def _slices(teller: ToldTables, entry: FeedEntry, begin: int) -> Iterator[SqlFeedSlice]:
        for one in slices(teller, entry, begin):
            yield SqlFeedSlice(one.changes, entry.last_revision)

    patch.setattr(desk, "_slices", _slices)


def _takes_the_tables_of_now(patch: pytest.MonkeyPatch) -> None:
    """What the tables were is not asked."""

    async def _catalog_at(self: FeedDesk, _revision: int, _owner: str) -> Mapping[str, CatalogRow]:
        return self._machine.catalog_at(self._machine.revision) or {}

    patch.setattr(FeedDesk, "_catalog_at", _catalog_at)


def _nothing(_patch: pytest.MonkeyPatch) -> None:
    """The bug is the stream's."""


@pytest.mark.parametrize(
    ("bug", "stream", "known"),
    [
        (_nothing, _ForgetsItsPlace, 0),
        (_tells_what_is_not_confirmed, SimChangeStream, 16),
        (_cuts_transactions, SimChangeStream, 1),
        (_goes_too_far, SimChangeStream, 1),
        (_takes_the_tables_of_now, SimChangeStream, 6),
    ],
)
def test_planted_bugs_are_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bug: Callable[[pytest.MonkeyPatch], None],
    stream: type[SimChangeStream],
    known: int,
) -> None:
    bug(monkeypatch)
    for number in hunt_order(30, known):
        try:
            run_feed_seed(number, tmp_path / str(number), stream)
        except (BrokenInvariantError, SimulationError, AssertionError, RsmError) as error:
            print(number, error)
            return
    pytest.fail(f"{bug.__name__}, {stream.__name__}: was not found")
