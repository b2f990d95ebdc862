"""What a caller sees who may read some logs: nothing of the cluster, and nothing of others' logs."""

from __future__ import annotations

import msgspec
import pytest

from ledger.rights.principal import ClientAccess, Principal, Role
from rsm_spark.console.core.callers import UNSEEN, WARNINGS_MAX, own_view, records_fault, sees_all, sees_log
from rsm_spark.console.core.view import (
    AuditView,
    ConsoleView,
    ConsoleWarning,
    CookieRow,
    FindingRow,
    LogRow,
    PlacementView,
    TasksView,
    changed_sections,
)
from tests.unit.rsm_spark.console.views import orders, view

READER = Principal(name="reader", role=Role.CLIENT, access=ClientAccess.READ, logs=("orders",))
HUSH = "hush"


def _whole() -> ConsoleView:
    """Return a view with something of everybody in each of its parts."""
    mine, others = ("orders", "orders"), (HUSH, HUSH)
    return view(
        orders(),
        LogRow(log=HUSH, machine="map"),
        placement=PlacementView(rule=HUSH),
        audit=AuditView(auditor=HUSH, is_enabled=True, checked_ms=0, looks=()),
        cookies=(CookieRow(bookie_id=HUSH, serves=True, journal="", ledgers=(), problem=""),),
        tasks=(TasksView(log=HUSH),),
        findings=tuple(FindingRow(f"log {log}", "good", said, log=log) for log, said in (mine, others))
        + (FindingRow("disk", "bad", HUSH),),
        warnings=tuple(
            ConsoleWarning("bad", said, said, "", "", "logs", 7, log=log) for log, said in (mine, others, ("", HUSH))
        ),
        problem=HUSH,
        zookeeper_ms=3.0,
    )


def test_a_reader_of_one_log_gets_that_log_and_not_a_letter_of_the_rest() -> None:
    shown = own_view(_whole(), READER)
    assert HUSH not in msgspec.json.encode(shown).decode()
    assert [one.log for one in shown.logs] == ["orders"]
    assert shown.log_count == 1
    assert [one.log for one in shown.findings] == ["orders"]
    assert [one.cause for one in shown.warnings] == [UNSEEN, "orders"]
    assert (shown.bookies, shown.copies, shown.tasks) == ((), None, ())
    assert shown.problem == UNSEEN


def test_warnings_of_others_leave_room_for_those_of_ones_own() -> None:
    others = tuple(ConsoleWarning("bad", f"{n}", HUSH, "", "", "logs", 7, log=HUSH) for n in range(2 * WARNINGS_MAX))
    mine = tuple(
        ConsoleWarning("note", f"m{n}", "mine", "", "", "logs", 7, log="orders") for n in range(WARNINGS_MAX + 1)
    )
    whole = view(warnings=(*others, *mine))
    assert [one.cause for one in own_view(whole, READER).warnings] == ["mine"] * WARNINGS_MAX
    auditor = Principal(name="auditor", role=Role.AUDITOR)
    assert own_view(whole, auditor).warnings == others[:WARNINGS_MAX]


def test_every_part_of_the_view_is_kept_back_unless_it_is_of_the_log() -> None:
    shown, nothing = own_view(_whole(), READER), ConsoleView()
    given = {name for name in ConsoleView.__struct_fields__ if getattr(shown, name) != getattr(nothing, name)}
    assert given == {"at_ms", "problem", "logs", "log_count", "findings", "warnings"}


def test_what_happens_to_others_is_no_change_for_a_reader() -> None:
    before = _whole()
    after = msgspec.structs.replace(
        before, logs=(orders(), LogRow(log=HUSH, machine="map", revision=9)), tasks=(), cookies=(), bookies=()
    )
    assert changed_sections(before, after) == {"logs", "tasks", "cookies", "bookies"}
    assert changed_sections(own_view(before, READER), own_view(after, READER)) == set()
    grown = msgspec.structs.replace(before, logs=(orders(revision=101), before.logs[1]))
    assert changed_sections(own_view(before, READER), own_view(grown, READER)) == {"logs"}


@pytest.mark.parametrize("role", list(Role))
def test_who_has_the_whole_cluster_gets_it_unchanged_and_who_reads_no_log_gets_none(role: Role) -> None:
    whole, principal = _whole(), Principal(name="x", role=role)
    if sees_all(principal):
        assert own_view(whole, principal) is whole
        assert records_fault(msgspec.structs.replace(principal, prefix=b"a")) == ""
    else:
        assert own_view(whole, principal).logs == ()
        assert not sees_log(principal, "orders")
    assert sees_all(principal) is (role in {Role.REPLICA, Role.OPERATOR, Role.AUDITOR})


def test_records_are_for_who_may_read_all_of_a_log() -> None:
    assert records_fault(READER) == ""
    assert "prefix of keys" in records_fault(msgspec.structs.replace(READER, prefix=b"a/"))
    assert "SQL tables" in records_fault(msgspec.structs.replace(READER, tables_read=("item",)))
    assert not sees_log(READER, HUSH)
    assert sees_log(msgspec.structs.replace(READER, logs=None), HUSH)
