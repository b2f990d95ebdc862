"""What the console warns of, and what it leaves alone."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import msgspec
import pytest

from rsm_spark.console.core import warnings
from rsm_spark.console.core.view import BookieRow, ConsoleView, PlacementView, TasksView, TaskTypeRow
from rsm_spark.console.core.warnings import (
    BEHIND_MAX,
    CONSUMER_STUCK_MS,
    OF_A_LOG_MAX,
    STUCK_MS,
    UNSERVED_MS,
    WarningFinder,
)
from tests.tidy.test_shown_commands import command_faults
from tests.unit.rsm_spark.console.views import BOOKIES, COPIES, consumer, lacking, orders, replica, view

_DOCUMENT = (Path(__file__).parents[4] / "docs" / "console.md").read_text()
_DOCUMENTED = re.findall(r"^rsm .*$", _DOCUMENT, re.MULTILINE)
_COMMANDS = re.findall(r"rsm [a-z][a-z -]*[a-z]", Path(warnings.__file__).read_text())
MISPLACED = PlacementView(rule="2 zones", ledger_count=7, misplaced_count=2)


def causes(shown: ConsoleView) -> list[tuple[str, str, str]]:
    return [(one.grade, one.cause, one.command) for one in WarningFinder().warnings(shown)]


def test_a_cluster_that_is_well_is_left_alone() -> None:
    assert causes(view()) == []


@pytest.mark.parametrize(
    ("shown", "grade", "cause", "command"),
    [
        (view(copies=lacking()), "bad", "copies are missing: 2 of 7 ledgers lack some", "rsm cluster under-replicated"),
        (view(copies=lacking(auditor="")), "bad", "copies are missing", "rsm autorecovery run"),
        (view(copies=msgspec.structs.replace(COPIES, auditor="")), "note", "nobody looks", "rsm autorecovery run"),
        (view(copies=msgspec.structs.replace(COPIES, is_enabled=False)), "note", "off", "rsm autorecovery enable"),
        (view(bookies=(*BOOKIES, BookieRow("b9:1", "missing", None, None, 3))), "bad", "b9:1", "rsm cluster bookies"),
        (view(bookies=(*BOOKIES, BookieRow("b9:1", "missing", None, None, 0))), "note", "b9:1", "rsm cluster bookies"),
        (view(bookies=BOOKIES[:1]), "bad", "1 bookies take entries", "rsm bookie run"),
        (view(placement=MISPLACED), "note", "2 of 7 ledgers break the placement rule", "rsm cluster placement"),
        (view(placement=PlacementView(problem="x")), "bad", "not known: x", "rsm cluster set-placement FILE"),
        (view(orders(leader="")), "bad", "log orders has no leader", "rsm status --log orders"),
        (view(msgspec.structs.replace(orders(leader=""), replicas=())), "bad", "nobody serves log orders",
         "rsm doctor --forget orders"),
        (view(msgspec.structs.replace(orders(leader=""), log="it's", replicas=())), "bad", "nobody serves log it's",
         "rsm doctor --forget 'it'\"'\"'s'"),
        (view(orders(replica("a"), replica("b", problem="unavailable"))), "bad", "unavailable",
         "rsm status --log orders"),
        (view(orders(alarms=("a: room",))), "bad", "log orders: a: room", "rsm status --log orders"),
        (view(orders(replica("a"), replica("b", behind=BEHIND_MAX))), "note", "and moves", "rsm status --log orders"),
        (view(orders(consumers=(consumer("lake", lost=7),))), "bad", "7 records that were trimmed",
         "rsm log consumers list orders"),
        (view(problem="ZooKeeper does not answer"), "bad", "ZooKeeper does not answer", "rsm doctor"),
    ],
)  # fmt: skip
def test_what_is_wrong_has_a_cause_and_a_command(shown: ConsoleView, grade: str, cause: str, command: str) -> None:
    ((seen_grade, seen_cause, seen_command),) = causes(shown)
    assert (seen_grade, seen_command) == (grade, command)
    assert cause in seen_cause


@pytest.mark.parametrize(
    "shown",
    [
        view(orders(leader="", forgotten_by="ann")),
        view(msgspec.structs.replace(orders(leader="", is_plain=True), replicas=())),
        view(orders(replica("a"), replica("b", behind=BEHIND_MAX - 1))),
        view(orders(consumers=(consumer("lake", behind=10**9),))),
    ],
)
def test_what_is_as_it_may_be_is_left_alone(shown: ConsoleView) -> None:
    assert causes(shown) == []


def test_a_replica_that_stands_is_told_once_it_has_stood_and_its_beginning_stays() -> None:
    finder = WarningFinder()

    def at(at_ms: int, revision: int, behind: int) -> list[tuple[str, int]]:
        shown = view(orders(replica("a"), replica("b", revision=revision, behind=behind)), at_ms=at_ms)
        return [(one.cause, one.since_ms) for one in finder.warnings(shown)]

    assert at(0, 100, 0) == []
    # It had nothing to read for an hour: it is behind since now.
    assert at(3_600_000, 100, 5) == []
    assert at(3_600_000 + STUCK_MS - 1, 100, 9) == []
    first_ms = 3_600_000 + STUCK_MS
    ((cause, since_ms),) = at(first_ms, 100, 12)
    assert "replica b of log orders is 12 records behind" in cause
    assert since_ms == first_ms
    ((cause, since_ms),) = at(first_ms + 10_000, 100, 40)
    assert "40 records behind" in cause
    assert since_ms == first_ms
    assert at(first_ms + 20_000, 101, 39) == []
    assert at(first_ms + 20_000 + STUCK_MS, 140, 0) == []


def test_a_follower_has_a_quarter_of_an_hour() -> None:
    finder = WarningFinder()
    shown = view(orders(consumers=(consumer("lake", behind=3),)), at_ms=1)
    assert finder.warnings(shown) == ()
    assert finder.warnings(msgspec.structs.replace(shown, at_ms=CONSUMER_STUCK_MS)) == ()
    (one,) = finder.warnings(msgspec.structs.replace(shown, at_ms=CONSUMER_STUCK_MS + 1))
    assert (one.grade, one.view, one.command) == ("note", "followers", "rsm log consumers list orders")


def test_tasks_that_nobody_serves_are_told_after_a_moment_and_those_that_are_served_never() -> None:
    finder = WarningFinder()
    types = (
        TaskTypeRow("mail", 7, 0, 0, False),
        TaskTypeRow("fax", 9, 1, 0, True),
        TaskTypeRow("telex", 0, 0, 0, False),
    )
    shown = view(at_ms=1, tasks=(TasksView(log="broker", waiting=16, types=types),))
    assert finder.warnings(shown) == ()
    (one,) = finder.warnings(msgspec.structs.replace(shown, at_ms=1 + UNSERVED_MS))
    assert one.cause == "7 tasks of type mail wait at the broker of log broker, and no worker runs that type"
    assert one.command == "rsm worker run --log broker --types mail --tasks MODULE"
    served = (TaskTypeRow("mail", 7, 0, 0, True),)
    again = msgspec.structs.replace(shown, at_ms=2 + UNSERVED_MS, tasks=(TasksView(log="broker", types=served),))
    assert finder.warnings(again) == ()
    assert finder.warnings(msgspec.structs.replace(shown, at_ms=3 + UNSERVED_MS)) == ()


def test_a_broker_that_tells_nothing_is_a_note() -> None:
    (one,) = WarningFinder().warnings(view(tasks=(TasksView(log="b", url="http://a:1", problem="answered 401"),)))
    assert (one.grade, one.command, one.view) == ("note", "rsm task list --url http://a:1", "tasks")


def test_the_worst_come_first_and_there_are_not_more_than_may_be() -> None:
    gone = [replica(f"r{number}", problem="gone") for number in range(2 * OF_A_LOG_MAX)]
    shown = view(orders(*gone), copies=msgspec.structs.replace(COPIES, auditor=""))
    found = WarningFinder().warnings(shown)
    assert len([one for one in found if one.log]) == OF_A_LOG_MAX
    assert [one.grade for one in found] == sorted(one.grade for one in found)  # "bad" before "note"
    assert {one.grade for one in found if one.log} == {"bad"}
    assert len({one.about for one in found}) == len(found)


@pytest.mark.parametrize("command", sorted({*_COMMANDS, *_DOCUMENTED}))
def test_commands_that_are_named_exist(command: str) -> None:
    rsm, *words = shlex.split(command)
    assert rsm == "rsm"
    assert command_faults(words) == []
