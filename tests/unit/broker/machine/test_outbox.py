"""What must leave to workers."""

from __future__ import annotations

from broker.machine.outbox import Outbox, OutboxItem, OutboxKind


def test_only_what_is_confirmed_leaves_in_order() -> None:
    outbox = Outbox()
    outbox.open()
    for revision in (5, 7, 9):
        outbox.add(revision, OutboxKind.ASSIGN, "w", revision * 10, revision)
    assert outbox.take(4) == []
    assert [item.revision for item in outbox.take(7)] == [5, 7]
    assert outbox.take(100) == [OutboxItem(9, OutboxKind.ASSIGN, "w", 90, 9)]
    assert len(outbox) == 0


def test_a_closed_outbox_stays_empty() -> None:
    outbox = Outbox()
    outbox.add(1, OutboxKind.ASSIGN, "w", 1, 1)
    outbox.open()
    outbox.add(2, OutboxKind.CANCEL, "w", 1, 1)
    outbox.close()
    assert not outbox
    assert not outbox.is_open


def test_what_waits_for_one_worker_can_be_dropped() -> None:
    outbox = Outbox()
    outbox.open()
    outbox.add(1, OutboxKind.ASSIGN, "v", 1, 1)
    outbox.add(2, OutboxKind.ASSIGN, "w", 2, 2)
    outbox.drop_worker("v")
    assert [item.worker_id for item in outbox.take(9)] == ["w"]
