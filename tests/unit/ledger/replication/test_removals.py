"""Bookies that are taken out in the background: how many at a time, what is told at the end, and what a stop breaks."""

from __future__ import annotations

import asyncio
import logging

import pytest

from ledger.errors import LedgerError, UsageError
from ledger.replication.marks import MarkStore
from ledger.replication.removals import REMOVALS_MAX, RemovalDesk
from ledger.wire import paths
from ledger.wire.metadata_format import Cookie
from ledger.zookeeper.ledgers import LedgerStore
from ledger.zookeeper.registration import create_cookie
from tests.unit.ledger.replication.test_decommission import GONE, ROOT, World, metadata_of, now_ms


async def _move(ledgers: LedgerStore, ledger_id: int) -> None:
    """Do what auto-recovery does."""
    _, version = await ledgers.read(ledger_id)
    await ledgers.write(ledger_id, metadata_of("a:3181", "b:3181"), version)


def _lines(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(one.levelno, one.getMessage()) for one in caplog.records if one.name == "ledger.replication.removals"]


@pytest.mark.parametrize("is_cookie_deleted", [True, False])
def test_the_end_is_told_and_the_cookie_goes_only_if_that_is_wanted(
    caplog: pytest.LogCaptureFixture, is_cookie_deleted: bool
) -> None:
    world = World()
    caplog.set_level(logging.INFO)

    async def play() -> None:
        ledgers = await world.ledgers(["a:3181", "b:3181"])
        await ledgers.create(1, metadata_of("a:3181", GONE))
        removals = RemovalDesk(ledgers, wall_ms=now_ms)
        assert await removals.has_cookie(GONE)
        assert not await removals.has_cookie("x:3181")
        await removals.begin([GONE, GONE], "ann", is_cookie_deleted=is_cookie_deleted)
        await asyncio.sleep(1)
        assert await MarkStore(ledgers.store, ROOT, "").marked() == [1]
        with pytest.raises(UsageError, match="is being taken out by this process"):
            await removals.begin([GONE], "bob", is_cookie_deleted=False)
        assert not _lines(caplog)
        await _move(ledgers, 1)
        await asyncio.sleep(60)
        cookie = "is deleted" if is_cookie_deleted else "stays"
        assert _lines(caplog) == [
            (logging.INFO, f"bookie {GONE}, taken out for ann: no ledger names it any more, and its cookie {cookie}")
        ]
        assert await removals.has_cookie(GONE) is not is_cookie_deleted

    world.run(play)


def test_few_at_a_time_all_of_a_list_or_none_and_a_stop_breaks_them_off(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    lost = [f"lost-{number}:3181" for number in range(REMOVALS_MAX)]

    async def play() -> None:
        ledgers = await world.ledgers(["a:3181", "b:3181"])
        await ledgers.create(1, metadata_of("a:3181", GONE))
        for number, one in enumerate(lost):
            await create_cookie(ledgers.store, ROOT, one, Cookie(one, "/journal", ("/ledgers",), None))
            await ledgers.create(10 + number, metadata_of("a:3181", one))
        removals = RemovalDesk(ledgers, wall_ms=now_ms)
        await removals.begin([GONE], "ann", is_cookie_deleted=True)
        with pytest.raises(UsageError, match=f"1 bookies are being taken out.*at most {REMOVALS_MAX} at a time"):
            await removals.begin(lost, "ann", is_cookie_deleted=True)
        await removals.begin(lost[1:], "ann", is_cookie_deleted=True)
        with pytest.raises(UsageError, match="at most"):
            await removals.begin(lost[:1], "ann", is_cookie_deleted=True)
        await asyncio.sleep(1)
        assert await MarkStore(ledgers.store, ROOT, "").marked() == [1, 11, 12, 13]  # Of the refused ones none.
        await removals.stop()
        broken = [words for level, words in _lines(caplog) if level == logging.WARNING and "broken off" in words]
        assert len(broken) == REMOVALS_MAX
        assert all([await removals.has_cookie(one) for one in [GONE, *lost]])
        await removals.begin(lost, "ann", is_cookie_deleted=False)  # Nothing is left of those that were broken off.
        await removals.stop()

    world.run(play)


def test_who_serves_is_refused_at_once_and_who_comes_back_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    world = World()

    async def play() -> None:
        ledgers = await world.ledgers(["a:3181", "b:3181"])
        await ledgers.create(1, metadata_of("a:3181", GONE))
        removals = RemovalDesk(ledgers, wall_ms=now_ms)
        with pytest.raises(UsageError, match="serves: stop it first"):
            await removals.begin(["a:3181"], "ann", is_cookie_deleted=True)
        await removals.begin([GONE], "ann", is_cookie_deleted=True)
        await asyncio.sleep(1)
        await ledgers.store.create(paths.available_path(ROOT, GONE), b"", ephemeral=True)
        await asyncio.sleep(60)
        ((level, words),) = _lines(caplog)
        assert level == logging.WARNING
        assert f"bookie {GONE}, taken out for ann: given up: bookie {GONE} serves" in words
        assert await removals.has_cookie(GONE)
        await MarkStore(ledgers.store, ROOT, "").set_enabled(is_enabled=False)
        with pytest.raises(LedgerError, match="auto-recovery is switched off"):
            await removals.begin(["x:3181"], "ann", is_cookie_deleted=True)

    world.run(play)
