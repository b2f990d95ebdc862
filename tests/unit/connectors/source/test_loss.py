from __future__ import annotations

from connectors.source.loss import Loss, Losses, gap_before
from connectors.source.offsets import LogOffset
from connectors.source.plan import LogSpan, LogView

# Ledgers 5 and 6 are left of a log; records 1 to 40 were in ledgers 3 and 4.
VIEW = LogView("orders", (LogSpan(5, 41, 3, 80, 400), LogSpan(6, 81, -1, 80, 0)), 41)


def test_a_ledger_that_is_gone_was_trimmed() -> None:
    loss = gap_before(VIEW, LogOffset(3, 2, 21))
    assert loss == Loss("orders", first=21, last=40, reason="trimmed")
    assert loss is not None
    assert (loss.count, loss.text) == (20, "log orders: records 21 to 40")


def test_the_end_of_a_trimmed_ledger_is_where_the_next_one_begins() -> None:
    assert gap_before(VIEW, LogOffset(4, 4, 41)) is None
    assert gap_before(VIEW, LogOffset(5, 0, 41)) is None
    assert gap_before(VIEW, LogOffset(6, 0, 81)) is None


def test_a_ledger_that_is_gone_although_its_records_are_there_is_one_of_another_log() -> None:
    loss = gap_before(VIEW, LogOffset(3, 7, 61))
    assert loss == Loss("orders", first=61, reason="the log was deleted and made anew")
    assert gap_before(VIEW, LogOffset(3, 7, 900)) == Loss("orders", first=900, reason=loss.reason)


def test_the_end_of_the_old_log_is_told_if_it_was_seen() -> None:
    loss = gap_before(VIEW, LogOffset(3, 7, 30), old_end=35)
    assert loss is not None
    assert (loss.first, loss.last, loss.count) == (30, 34, 5)
    nothing = gap_before(VIEW, LogOffset(3, 7, 35), old_end=35)
    assert nothing is not None
    assert nothing.count == 0


def test_a_loss_is_told_once_and_grows() -> None:
    told: list[str] = []
    losses = Losses(told.append)
    losses.add(Loss("orders", first=21, last=40, reason="trimmed"))
    losses.add(Loss("orders", first=21, last=40, reason="trimmed"))
    losses.add(Loss("orders", first=30, last=35, reason="trimmed"))
    assert told == ["log orders: records 21 to 40 are lost to this query (trimmed); it goes on behind them"]
    losses.add(Loss("orders", first=21, last=60, reason="trimmed"))
    losses.add(Loss("orders", first=100, last=100, reason="trimmed"))
    assert losses.as_json() == [
        {"log": "orders", "from": 21, "to": 60, "count": 40},
        {"log": "orders", "from": 100, "to": 100, "count": 1},
    ]
    assert len(told) == 3


def test_what_is_not_known_is_null() -> None:
    losses = Losses(lambda _: None)
    losses.add(Loss("orders", first=61, reason="made anew"))
    losses.add(Loss("orders", first=70, reason="made anew"))
    losses.add(Loss("orders", first=65, last=80, reason="made anew"))
    losses.add(Loss(ledger_id=17, first=5, last=9, reason="deleted"))
    losses.add(Loss("bills", last=40, reason="trimmed"))
    assert losses.as_json() == [
        {"log": "orders", "from": 61, "to": None, "count": None},
        {"ledger": 17, "from": 5, "to": 9, "count": 5},
        {"log": "bills", "from": None, "to": 40, "count": None},
    ]
