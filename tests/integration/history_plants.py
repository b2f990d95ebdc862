"""Faults planted into a recorded history: a judge that does not find them judges nothing."""

from __future__ import annotations

import random

from rsm_spark.testing.history import CallerCall, CallerReply, Kind, is_write
from rsm_spark.testing.linearizability import CheckOutcome, check_history


def door_of(call: CallerCall) -> str:
    """Return the door of a recorded caller, by its name."""
    return str(call.client).partition("-")[0]


def with_stale_read(calls: list[CallerCall], door: str, rng: random.Random) -> list[CallerCall]:
    """Return the calls of one key, one read by this door changed: it tells what was overwritten before it began."""
    reads = [call for call in calls if call.kind is Kind.GET and call.reply is not None and door_of(call) == door]
    rng.shuffle(reads)
    for read in reads:
        of_key = [call for call in calls if call.key == read.key]
        puts = [call for call in of_key if call.kind is Kind.PUT and is_write(call) and call.ended_s < read.began_s]
        if len(puts) < 2:
            continue
        old, new = sorted(puts, key=_revision)[-2:]
        if _revision(old) == _revision(new):
            continue
        stale = read._replace(reply=CallerReply(value=old.argument, revision=_revision(old)))
        return [stale if call is read else call for call in of_key]
    raise AssertionError(f"no read by {door} that could be stale")


def _revision(call: CallerCall) -> int:
    assert call.reply is not None
    return call.reply.revision or 0


def check_doors(calls: list[CallerCall], doors: tuple[str, ...], *, answered_min: int, seed: int) -> None:
    """Fail unless each door has answered reads and writes, and a stale read by each of them would be found."""
    rng = random.Random(seed)
    for door in doors:
        mine = [call for call in calls if door_of(call) == door and call.reply is not None]
        writes = sum(is_write(call) for call in mine)
        reads = sum(call.kind is Kind.GET for call in mine)
        unknown = sum(call.reply is None for call in calls if door_of(call) == door)
        print(f"{door}: {reads} reads and {writes} writes answered, {unknown} calls of unknown outcome")
        assert min(reads, writes) >= answered_min, door
        verdict = check_history(with_stale_read(calls, door, rng))
        assert verdict.finding is CheckOutcome.VIOLATED, f"a stale read by {door} is taken for right"
