"""Parts of the view that have changed: what grows by itself is no change."""

from __future__ import annotations

import msgspec

from rsm_spark.console.core.view import ConsoleView, CookieRow, FindingRow, PlacementView, TasksView, changed_sections
from tests.unit.rsm_spark.console.views import BOOKIES, consumer, lacking, orders, replica, view


def test_nothing_has_changed_while_only_time_goes_by() -> None:
    before = view(orders(replica("a", role="leader", lag_ms=0), replica("b", lag_ms=1_000)))
    after = view(orders(replica("a", role="leader", lag_ms=0), replica("b", lag_ms=6_000)), at_ms=65_000)
    assert changed_sections(before, msgspec.structs.replace(after, zookeeper_ms=3.0)) == set()


def test_each_part_is_told_by_itself() -> None:
    before = view()
    assert changed_sections(before, view(bookies=BOOKIES[:2])) == {"bookies"}
    assert changed_sections(before, view(copies=lacking())) == {"copies"}
    assert changed_sections(before, view(orders(revision=101))) == {"logs"}
    assert changed_sections(before, view(orders(consumers=(consumer("lake"),)))) == {"logs"}
    assert changed_sections(before, view(log_count=2)) == {"logs"}
    assert changed_sections(before, view(findings=(FindingRow("x", "bad", "y"),))) == {"findings"}
    assert changed_sections(before, view(tasks=(TasksView(log="b"),))) == {"tasks"}
    assert changed_sections(before, view(placement=PlacementView(rule="2 zones"))) == {"placement"}
    cookie = CookieRow(bookie_id="b", serves=True, journal="", ledgers=(), problem="")
    assert changed_sections(before, view(cookies=(cookie,))) == {"cookies"}
    assert changed_sections(before, view(problem="away")) == {"warnings"}
    assert changed_sections(ConsoleView(), before) == {"bookies", "copies", "logs"}


def test_a_replica_that_has_applied_its_first_entry_is_a_change() -> None:
    before, after = (view(orders(replica("a", lag_ms=lag_ms))) for lag_ms in (-1, 0))
    assert changed_sections(before, after) == {"logs"}
