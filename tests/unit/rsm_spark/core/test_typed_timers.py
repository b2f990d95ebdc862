"""Timers of typed services: when they are called, what they leave, and that one that fails holds up no other."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st

import rsm_spark as rsm
from rsm_spark.core.envelope import body_of
from rsm_spark.core.records import decode_records
from rsm_spark.errors import InvalidDescriptionError
from rsm_spark.testing import MachineHarness, check_machine, simulate


class Hold(msgspec.Struct):
    seat: str
    buyer: str
    since_ms: int
    lasts_ms: int | None = None


class Reminder(msgspec.Struct):
    name: str
    at_ms: int
    left: int = 0


class Released(msgspec.Struct):
    seat: str
    count: int = 0


class Seats(rsm.Service):
    holds = rsm.table(Hold)
    reminders = rsm.table(Reminder)
    released = rsm.table(Released)

    @rsm.command
    def hold(self, seat: str, buyer: str, lasts_ms: int | None = 1_000) -> None:
        self.holds.put(Hold(seat, buyer, self.now_ms, lasts_ms))

    @rsm.command
    def remind(self, name: str, in_ms: int, times: int = 1) -> None:
        self.reminders.put(Reminder(name, self.now_ms + in_ms, times))

    @rsm.command
    def count(self, seat: str) -> None:
        one = self.released.get(seat) or Released(seat)
        one.count += 1
        self.released.put(one)

    @rsm.query
    def released_count(self, seat: str) -> int:
        one = self.released.get(seat)
        return 0 if one is None else one.count

    @rsm.due(holds, since="since_ms", lasts="lasts_ms")
    def release(self, hold: Hold) -> None:
        self.holds.delete(hold.seat)
        self.count(hold.seat)

    @rsm.due(reminders, at="at_ms")
    def ring(self, reminder: Reminder) -> None:
        reminder.left -= 1
        reminder.at_ms += 500
        if reminder.name == "broken":
            raise ValueError("nobody knows how")
        if reminder.name == "stuck":
            return
        if reminder.left:
            self.reminders.put(reminder)
        else:
            self.reminders.delete(reminder.name)


def test_a_timer_is_called_for_each_row_when_its_time_has_come() -> None:
    seats = MachineHarness(Seats())
    seats.call(Seats.hold, "1a", "ann")
    seats.advance(400)
    seats.call(Seats.hold, "1b", "bob")
    seats.call(Seats.hold, "1c", "eve", None)
    assert seats.advance(500) == ()
    assert seats.advance(100) == (
        ("holds_deleted", {"seat": "1a"}),
        ("released_written", {"seat": "1a", "count": 1}),
    )
    seats.call(Seats.hold, "1b", "bob", 5_000)  # Held anew.
    assert seats.advance(4_000) == ()
    assert [name for name, _ in seats.advance(1_000)] == ["holds_deleted", "released_written"]
    assert seats.rows("holds").keys() == {("1c",)}, "a row whose time is None is never due"
    assert seats.call(Seats.released_count, "1a") == 1


def test_a_timer_may_give_its_row_a_later_time() -> None:
    seats = MachineHarness(Seats())
    seats.call(Seats.remind, "tea", 1_000, 3)
    rung = seats.advance(10_000)
    assert [name for name, _ in rung] == ["reminders_written", "reminders_written", "reminders_deleted"]
    assert [fields.get("left") for _, fields in rung] == [2, 1, None]


def test_what_a_timer_changes_is_in_one_entry_whatever_else_is_due() -> None:
    seats = MachineHarness(Seats())
    for number in range(40):
        seats.call(Seats.hold, f"{number}", "ann")
    first = len(seats.entries)
    seats.advance(2_000)
    for payload in seats.entries[first:]:
        kinds = [record.type for record in decode_records(body_of(payload))]
        assert kinds == [17, 20] * (len(kinds) // 2)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("broken", r"timer Seats\.ring, row \('broken',\): ValueError: nobody knows how"),
        ("stuck", r"timer Seats\.ring, row \('stuck',\): it leaves its row due: delete it, or give it a later time"),
    ],
)
def test_a_timer_that_fails_is_told_and_tried_again_and_others_do_not_wait(name: str, said: str) -> None:
    seats = MachineHarness(Seats())
    seats.call(Seats.remind, name, 100)
    seats.call(Seats.hold, "1a", "ann", 100)
    with pytest.raises(RuntimeError, match=said):
        seats.advance(1_000)
    assert seats.call(Seats.released_count, "1a") == 1, "the other one was worked off"
    assert seats.advance(50_000) == ()
    with pytest.raises(RuntimeError, match=said):
        seats.advance(60_000)
    seats.call(Seats.remind, name, 100_000)  # The row has changed: it has a time of its own again.
    assert seats.advance(50_000) == ()


def test_a_new_leader_gives_lengths_their_full_time_again_and_appointments_none() -> None:
    seats = MachineHarness(Seats())
    seats.call(Seats.hold, "1a", "ann")
    machine: Any = seats.machine
    assert machine.next_due_ms(0) == seats.now_ms + 1_000
    later = seats.now_ms + 700
    assert machine.next_due_ms(later) == later + 1_000
    assert list(machine.due(later + 999, later, 10)) == []
    seats.call(Seats.remind, "tea", 1_000)
    assert machine.next_due_ms(later) == seats.now_ms + 1_000
    assert machine.next_due_ms(later + 400) == seats.now_ms + 1_000


def test_a_part_has_its_timers_too() -> None:
    class Hall(rsm.Service):
        seats = rsm.part(Seats)

    one = MachineHarness(Hall())
    one.call(Hall.seats.hold, "1a", "ann")
    assert [name for name, _ in one.advance(1_000)] == ["seats.holds_deleted", "seats.released_written"]


def test_what_is_no_time_is_refused_when_the_class_is_defined() -> None:
    table = rsm.table(Hold)
    for columns, said in (
        ({"at": "buyer"}, "'buyer' is no column of whole numbers of its table, which has since_ms, lasts_ms"),
        ({"since": "since_ms"}, "takes either at=COLUMN, or since=COLUMN and lasts=COLUMN"),
        ({"at": "since_ms", "lasts": "lasts_ms"}, "takes either"),
        ({}, "takes either"),
    ):
        with pytest.raises(InvalidDescriptionError, match=said):
            rsm.due(table, **columns)(lambda _self, _row: None)
    with pytest.raises(InvalidDescriptionError, match="timer 'late' is of a table of another class"):

        class Other(rsm.Service):
            holds = rsm.table(Hold)

            @rsm.due(table, at="since_ms")
            def late(self, hold: Hold) -> None:
                self.holds.delete(hold.seat)


_SEATS, _NAMES, _TIMES = st.sampled_from("abc"), st.sampled_from("xy"), st.integers(0, 3_000)
_COMMANDS = st.one_of(
    st.builds(lambda seat, ms: rsm.encode_call(Seats.hold, seat, "ann", ms), _SEATS, _TIMES),
    st.builds(lambda name, ms: rsm.encode_call(Seats.remind, name, ms, 2), _NAMES, _TIMES),
)


def _draw(rng: random.Random) -> bytes:
    if rng.random() < 0.5:
        return rsm.encode_call(Seats.hold, rng.choice("abc"), "ann", rng.randrange(3_000))
    return rsm.encode_call(Seats.remind, rng.choice("xy"), rng.randrange(3_000), 2)


def test_the_kit_checks_and_simulates_a_service_with_timers() -> None:
    check_machine(Seats, _COMMANDS)
    simulate(Seats, _draw, seeds=2)
