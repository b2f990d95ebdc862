"""Old rows from before what a machine remembers, from a snapshot or the log's beginning; in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rsm_spark.core.commands import AnswerStatus, Command
from rsm_spark.core.machine import Row
from rsm_spark.core.records import pack
from rsm_spark.errors import ConnectionLostError, InvalidCommandError, MissingLogError
from rsm_spark.log.commit_log import LogReader
from rsm_spark.map import messages as m
from rsm_spark.map.machine import MapMachine
from rsm_spark.map.records import MAP_DESCRIPTION, MAP_TABLE, said_revision
from rsm_spark.map.row_ring import RowRing
from rsm_spark.map.rows import row_of
from rsm_spark.runtime.change_feed import ChangeFeed, FeedEntry
from rsm_spark.runtime.change_filter import ChangeFilter, TableChange
from rsm_spark.runtime.old_rows import OldRows
from rsm_spark.runtime.past_rows import PastRows
from rsm_spark.runtime.range_rows import RangeRows
from tests.unit.rsm_spark.runtime.log_world import SESSION, LogWorld, run

Told = list[tuple[bytes, bytes | None]]
"""Keys of changes, and the values that they have replaced."""


class ForgetfulMap(MapMachine):
    """Remembers the last few changes."""

    def __init__(self) -> None:
        super().__init__()
        self._replaced = RowRing(2_000)


async def ask(world: LogWorld, *commands: Any) -> int:
    """Run commands, each in an entry of its own; return the last revision."""
    for command in commands:
        world._sequence += 1
        one = Command(SESSION, world._sequence, world._sequence - 1, m.encode(command))
        (answer,) = await world.leader.submit([one])
        assert answer.status is AnswerStatus.OK, answer.payload
    return world.leader.revision


async def write(world: LogWorld, count: int) -> Told:
    """Write to nine keys in turn; return what a watch from the first of them on is to tell of keys with `k`."""
    held: dict[bytes, bytes] = {}
    expected: Told = []
    for number in range(count):
        key = b"k%d" % (number % 9)
        expected.append((key, held.get(key)))
        held[key] = b"value %d" % number
        await ask(world, m.Put(key, held[key]), m.Put(b"other", b""))
    gone = m.MapTransaction([], [m.Delete(b"k1"), m.Put(b"k1", b"new"), m.Put(b"k1", b"newer")], [])
    await ask(world, gone)
    return [*expected, (b"k1", held[b"k1"]), (b"k1", None), (b"k1", b"new")]


async def told(
    world: LogWorld, past: PastRows | None, feed: ChangeFeed, from_revision: int, prefix: bytes = b"k"
) -> Told:
    """Return what a watch with old values is told up to the present."""
    machine = world.leader._context.machine
    assert isinstance(machine, MapMachine)
    every = ChangeFilter(MAP_DESCRIPTION, MAP_TABLE, prefix, prefix + b"\xff", (), said_revision)
    olds = OldRows(MAP_TABLE, machine.row_before, past, every)
    cursor, seen = feed.cursor(from_revision), []
    last = world.leader.revision
    try:
        while cursor.next_revision <= last:
            first = cursor.next_revision
            entries = await cursor.read(1.0)
            changes: list[TableChange] = []
            for entry in entries:
                changes += every.take(entry, first)
            async for part in olds.told(entries, changes):
                seen += [
                    (row_of(one.key).value, None if one.old_row is None else row_of(one.old_row).value) for one in part
                ]
    finally:
        olds.close()
        await cursor.close()
    return seen


def watch_from(world: LogWorld, folder: Path, **more: Any) -> tuple[ChangeFeed, PastRows]:
    feed = ChangeFeed(world.leader._context, ring_bytes=500)
    return feed, PastRows(feed.context, folder, **more)


def test_a_watch_from_long_ago_is_told_what_was_there_and_then_what_the_machine_remembers(tmp_path: Path) -> None:
    async def scenario(world: LogWorld) -> None:
        feed, past = watch_from(world, tmp_path)
        begun = world.leader.revision + 1
        expected = await write(world, 60)
        with pytest.raises(MissingLogError, match="remembers old values from revision"):
            await told(world, None, feed, begun)
        assert await told(world, past, feed, begun) == expected
        assert (past.opened_count, past.open_count) == (1, 0)
        # Within the memory of the machine nothing is opened, nor where nothing of the range changes.
        late = world.leader.revision - 2
        assert await told(world, past, feed, late) == expected[-3:]
        assert await told(world, past, feed, begun, b"none") == []
        assert past.opened_count == 1
        assert list(tmp_path.iterdir()) == [], "files have no names"

    run(scenario, replica_count=1, machine=ForgetfulMap)


def test_the_log_is_folded_in_small_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    fold = RangeRows.fold

    def watched(rows: RangeRows, entries: Sequence[FeedEntry], up_to: int | None = None) -> None:
        sizes.append(sum(len(entry.payload) for entry in entries))
        fold(rows, entries, up_to)

    monkeypatch.setattr(RangeRows, "fold", watched)

    async def scenario(world: LogWorld) -> None:
        _, past = watch_from(world, tmp_path)
        drawn = Random(1)
        await ask(world, *(m.Put(b"k%d" % (n % 5), drawn.randbytes(100_000)) for n in range(40)))
        rows = await past.open(ChangeFilter(MAP_DESCRIPTION, MAP_TABLE), revision=world.leader.revision)
        assert len(rows.items()) == 5
        past.close(rows)

    run(scenario, replica_count=1, machine=MapMachine)
    assert sum(sizes) > 4_000_000
    assert max(sizes) < 400_000


def test_a_log_that_is_trimmed_while_it_is_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, trims = LogReader.read, [True]

    async def trimmed_once(reader: LogReader) -> Any:
        found = await read(reader)
        if found and trims:
            trims.clear()
            raise MissingLogError("trimmed", first_revision=1, last_revision=2)
        return found

    async def scenario(world: LogWorld) -> None:
        _, past = watch_from(world, tmp_path)
        await write(world, 12)
        monkeypatch.setattr(LogReader, "read", trimmed_once)
        rows = await past.open(ChangeFilter(MAP_DESCRIPTION, MAP_TABLE, b"k"), revision=world.leader.revision)
        monkeypatch.setattr(LogReader, "read", read)
        assert len(rows.items()) == 10  # Nine keys of `k`, and the other one.
        past.close(rows)

    run(scenario, replica_count=1, machine=ForgetfulMap)
    assert not trims


def test_it_begins_with_the_nearest_snapshot_where_the_log_was_trimmed(tmp_path: Path) -> None:
    async def scenario(world: LogWorld) -> None:
        feed, past = watch_from(world, tmp_path)
        await ask(world, m.Put(b"k1", b"oldest"), m.Put(b"k2", b"old"))
        await _roll(world, 2)
        names = sorted(world.cluster.replicas)
        revision = await world.verify(*names[:2])
        async with asyncio.timeout(600):
            while (await world.chain()).ledgers[0].first_revision == 1:
                await asyncio.sleep(0.5)
        begun = await ask(world, m.Put(b"k2", b"new"))
        await ask(world, *(m.Put(b"far/%d" % (number % 9), b"") for number in range(200)), m.Delete(b"k1"))
        assert await told(world, past, feed, begun) == [(b"k2", b"old"), (b"k1", b"oldest")]
        assert past.opened_count == 1
        first = (await world.chain()).ledgers[0].first_revision
        assert first < revision
        # Before the snapshot the log is still there, but nothing leads to what was before it.
        with pytest.raises(MissingLogError, match="no snapshot here or in the lake is at or before") as caught:
            await past.open(ChangeFilter(MAP_DESCRIPTION, MAP_TABLE), revision=first)
        assert caught.value.last_revision == revision
        assert past.open_count == 0

    run(
        scenario, machine=ForgetfulMap, roll_bytes=4_000, retention_ms=1_000, trim_s=0.5, checkpoint_records=1,
        snapshot_s=0, limit_s=3_000.0,
    )  # fmt: skip


async def _roll(world: LogWorld, count: int) -> None:
    before = len((await world.chain()).ledgers)
    while len((await world.chain()).ledgers) < before + count:
        await ask(world, m.Put(b"far/%d" % (world._sequence % 50), b"x" * 100))
        await asyncio.sleep(0.01)


def test_only_so_many_are_open_at_once_and_those_that_end_give_their_place(tmp_path: Path) -> None:
    async def scenario(world: LogWorld) -> None:
        _, past = watch_from(world, tmp_path, open_max=1)
        last = await ask(world, m.Put(b"k", b"1"))
        every = ChangeFilter(MAP_DESCRIPTION, MAP_TABLE)
        rows = await past.open(every, revision=last)
        with pytest.raises(ConnectionLostError, match="1 watches read old values from before"):
            await past.open(every, revision=last)
        past.close(rows)
        past.close(await past.open(every, revision=last))
        assert past.open_count == 0
        _, shared = watch_from(world, tmp_path, open_max=4)
        for _ in range(2):
            await shared.open(every, revision=last, owner="greedy")
        with pytest.raises(ConnectionLostError, match="2 of them of the same caller"):
            await shared.open(every, revision=last, owner="greedy")
        await shared.open(every, revision=last, owner="other")

    run(scenario, replica_count=1, machine=ForgetfulMap)


def test_rows_that_need_more_than_the_file_may_have_are_refused_in_words(tmp_path: Path) -> None:
    rows = RangeRows(tmp_path, ChangeFilter(MAP_DESCRIPTION, MAP_TABLE), bytes_max=40_000)
    many = [Row(MAP_TABLE, pack((b"%d" % number,)), pack((b"v" * 1_000,)), number) for number in range(100)]
    with pytest.raises(InvalidCommandError, match="Watch a narrower range, or without old values"):
        rows.load(many)
    rows.close()


def test_old_rows_of_one_part_are_bounded_and_a_file_that_was_given_back_ends_the_call(tmp_path: Path) -> None:
    rows = RangeRows(tmp_path, ChangeFilter(MAP_DESCRIPTION, MAP_TABLE))
    value = pack((b"v" * 1_000_000,))
    rows.load(Row(MAP_TABLE, pack((b"%02d" % number,)), value, number) for number in range(1, 21))
    gone = [TableChange(100 + number, 17, pack((b"%02d" % number,)), None, 0) for number in range(1, 21)]
    olds, place = rows.move(gone, 0)
    assert (len(olds), place) == (5, 5)
    assert olds[101] == (value, 1)
    assert rows.move(gone, 5)[1] == 10
    rows.clear()
    assert rows.move(gone, 0) == ({}, 20)
    rows.close()
    assert rows.move(gone, 0) == ({}, 0)
