"""Deferred sync: acknowledged is not confirmed; a force makes it so, and a failed bookie ends the writer."""

from __future__ import annotations

import pytest

from ledger.core.deferred_writer import DeferredLedgerWriter
from ledger.core.quorum import QuorumConfig
from ledger.core.writer_effects import ConfirmEntries, Effect, FailPending, SendEntries
from ledger.errors import QuorumLostError

E3 = QuorumConfig(3, 3, 2)


def writer_of() -> DeferredLedgerWriter:
    return DeferredLedgerWriter(7, E3, ["b0:1", "b1:1", "b2:1"])


def append(writer: DeferredLedgerWriter, count: int) -> list[Effect]:
    first = writer.last_add_pushed + 1
    effects = writer.append([10] * count)
    for position in range(3):
        effects += writer.on_stored(position, range(first, first + count))
        writer.validate()
    return effects


def failure_of(effects: list[Effect]) -> QuorumLostError:
    (effect,) = effects
    assert isinstance(effect, FailPending)
    assert isinstance(effect.error, QuorumLostError)
    return effect.error


def test_an_acknowledgement_moves_no_lac_and_a_force_does() -> None:
    writer = writer_of()
    assert append(writer, 2) == [SendEntries(0, -1, [10, 20]), ConfirmEntries(1)]
    assert (writer.last_stored, writer.last_add_confirmed, writer.confirmed_length) == (1, -1, 0)
    target = writer.begin_force()
    append(writer, 1)
    writer.on_forced(target)
    assert (writer.last_stored, writer.last_add_confirmed, writer.confirmed_length) == (2, 1, 20)
    assert writer.append([1])[0] == SendEntries(3, 1, [31])
    writer.validate()


def test_a_force_that_ends_late_takes_nothing_back() -> None:
    writer = writer_of()
    append(writer, 1)
    early = writer.begin_force()
    append(writer, 1)
    writer.on_forced(writer.begin_force())
    writer.on_forced(early)
    assert writer.last_add_confirmed == 1


def test_pending_bytes_do_not_count_what_waits_for_a_force() -> None:
    writer = writer_of()
    append(writer, 5)
    assert writer.pending_bytes == 0


@pytest.mark.parametrize("how", ["failed", "lost"])
def test_a_bookie_that_fails_while_something_is_not_forced_ends_the_writer(how: str) -> None:
    writer = writer_of()
    append(writer, 1)
    fail = writer.on_position_failed if how == "failed" else writer.on_position_lost
    error = failure_of(fail(1, "gone"))
    assert "b1:1: gone" in str(error)
    assert "up to -1 are durable" in str(error)
    writer.on_forced((0, 10))
    assert writer.last_add_confirmed == -1


def test_a_bookie_that_fails_while_all_is_forced_may_come_back() -> None:
    writer = writer_of()
    append(writer, 1)
    writer.on_forced(writer.begin_force())
    assert writer.on_position_lost(1, "gone") + writer.on_position_failed(1, "gone") == []
    assert writer.on_position_restored(1) == []
    assert append(writer, 1)[-1] == ConfirmEntries(1)


def test_an_append_while_a_bookie_is_away_ends_the_writer() -> None:
    writer = writer_of()
    writer.on_position_failed(1, "gone")
    sent, failed = writer.append([1])
    assert isinstance(sent, SendEntries)
    failure_of([failed])


def test_a_force_that_failed_ends_the_writer() -> None:
    writer = writer_of()
    append(writer, 1)
    assert "b2:1: EIO" in str(failure_of(writer.on_force_failed("b2:1: EIO")))
    assert writer.on_force_failed("again") == []
