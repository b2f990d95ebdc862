"""What users test their machines with: it runs them as a leader does, and finds what is wrong with them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st

from rsm_spark.core.machine import Decision, Field, FieldType, MachineDescription, Row, RowChange, TableDescription
from rsm_spark.core.table_machine import TableMachine, delete, note, upsert
from rsm_spark.errors import InvalidDescriptionError
from rsm_spark.testing import BrokenInvariantError, MachineHarness, check_machine, simulate

NAME = (Field("name", FieldType.STR),)
SEATS = TableDescription("seats", NAME, (Field("until_ms", FieldType.INT),))
TAKEN, LEFT, RANG = 16, 17, 18
_HOLD_MS = 5_000


class Seats(TableMachine):
    """Seats by name, each held for five seconds. A command is a name; "?" is one that it does not understand."""

    description: ClassVar = MachineDescription(
        "seats", 1, (SEATS,), (upsert(TAKEN, "taken", SEATS), delete(LEFT, "left", SEATS), note(RANG, "rang", *NAME))
    )

    def decide(self, command: bytes, revision: int, now_ms: int) -> Decision:
        name = command.decode()
        if name == "?":
            raise ValueError("what?")
        if self.get("seats", name) is not None:
            return Decision((), b"taken")
        return Decision([(TAKEN, (name, now_ms + _HOLD_MS)), (RANG, (name,))], b"yours")

    def query(self, query: bytes, revision: int) -> bytes:
        return b"%d" % self.count("seats")

    def due(self, now_ms: int, promoted_ms: int, limit: int) -> Iterator[tuple[int, tuple[Any, ...]]]:
        gone = [name for (name,), (until_ms,) in self.items("seats") if until_ms <= now_ms]
        return iter([(LEFT, (name,)) for name in sorted(gone)[:limit]])

    def next_due_ms(self, promoted_ms: int) -> int | None:
        return min((until_ms for _, (until_ms,) in self.items("seats")), default=None)


class NextSeats(Seats):
    """The next version: who sits there may be told."""

    _TABLE = TableDescription("seats", NAME, (*SEATS.row, Field("guest", FieldType.STR, nullable=True)))
    description: ClassVar = MachineDescription(
        "seats", 2, (_TABLE,), (upsert(TAKEN, "taken", _TABLE), delete(LEFT, "left", _TABLE), note(RANG, "rang", *NAME))
    )

    def decide(self, command: bytes, revision: int, now_ms: int) -> Decision:
        name, _, guest = command.decode().partition("=")
        if self.get("seats", name) is not None:
            return Decision((), b"taken")
        return Decision([(TAKEN, (name, now_ms + _HOLD_MS, guest or None))], b"yours")

    def due(self, now_ms: int, promoted_ms: int, limit: int) -> Iterator[tuple[int, tuple[Any, ...]]]:
        gone = [key[0] for key, row in self.items("seats") if row[0] <= now_ms]
        return iter([(LEFT, (name,)) for name in sorted(gone)[:limit]])

    def next_due_ms(self, promoted_ms: int) -> int | None:
        return min((row[0] for _, row in self.items("seats")), default=None)


COMMANDS = st.sampled_from([b"a", b"b", b"c", b"?"])


def draw(rng: random.Random) -> bytes:
    return rng.choice([b"a", b"b", b"c", b"?"])


# ---- the harness


def test_a_command_is_decided_logged_and_folded() -> None:
    seats = MachineHarness(Seats(), now_ms=1_000)
    done = seats.execute(b"a")
    assert done.reply == b"yours"
    assert done.records == (("taken", {"name": "a", "until_ms": 6_000}), ("rang", {"name": "a"}))
    assert seats.execute(b"a") == (b"taken", (), done.revision + 1), "a no is logged too"
    assert (seats.query(b""), seats.rows("seats")) == (b"1", {("a",): (6_000,)})


def test_what_the_machine_raises_is_raised_and_the_log_goes_on() -> None:
    seats = MachineHarness(Seats())
    with pytest.raises(ValueError, match="what"):
        seats.execute(b"?")
    assert seats.execute(b"a").reply == b"yours"


def test_time_passes_when_it_is_told_to() -> None:
    seats = MachineHarness(Seats())
    seats.execute(b"a")
    assert seats.advance(4_999) == ()
    assert seats.advance(1) == (("left", {"name": "a"}),)
    assert seats.rows("seats") == {}


def test_another_process_goes_on_from_the_snapshot_and_another_version_from_there() -> None:
    seats = MachineHarness(Seats())
    seats.execute(b"a")
    digest = seats.digest
    seats.restart()
    assert seats.digest == digest
    assert seats.execute(b"a").reply == b"taken"
    seats.restart(NextSeats())
    assert seats.execute(b"b").records[0].fields.keys() == {"name", "until_ms"}, "the log is of version 1"
    with pytest.raises(InvalidDescriptionError, match="still of version 1"):
        seats.execute(b"c=ann")
    seats.raise_version()
    assert seats.execute(b"c=ann").records[0].fields["guest"] == "ann"
    assert [row[1:] for row in seats.rows("seats").values()] == [(), (), ("ann",)]
    for machine in (Seats(), NextSeats()):
        assert seats.replay(machine).digest == seats.digest


class RingingSeats(NextSeats):
    """Who has sat long enough is told that in the guest's column, which version 1 of the log has not."""

    def due(self, now_ms: int, promoted_ms: int, limit: int) -> Iterator[tuple[int, tuple[Any, ...]]]:
        over = [key[0] for key, row in self.items("seats") if row[0] <= now_ms]
        return iter([(TAKEN, (name, now_ms + _HOLD_MS, "rings")) for name in sorted(over)[:limit]])


def test_what_falls_due_waits_until_the_log_can_hold_it() -> None:
    seats = MachineHarness(Seats())
    seats.execute(b"a")
    seats.restart(RingingSeats())
    with pytest.raises(InvalidDescriptionError, match="still of version 1"):
        seats.advance(_HOLD_MS)
    assert seats.execute(b"b").reply == b"yours", "the log goes on"
    seats.raise_version()
    assert {row[1:] for row in seats.rows("seats").values()} == {("rings",), ()}
    assert seats.replay(Seats()).digest == seats.digest


# ---- properties


def test_a_sound_machine_passes() -> None:
    check_machine(Seats, COMMANDS, queries=st.just(b""))
    check_machine(NextSeats, COMMANDS, older=Seats)


class Counting(Seats):
    """Decides by what it was asked before, which is in no log."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def decide(self, command: bytes, revision: int, now_ms: int) -> Decision:
        self.asked += 1
        return Decision((), b"%d" % self.asked)


class Scribbling(Seats):
    """Writes its table in `decide`."""

    def decide(self, command: bytes, revision: int, now_ms: int) -> Decision:
        self.apply(TAKEN, (command.decode(), 1), revision)
        return Decision((), b"")


class Remembering(Seats):
    """Keeps beside its table what a snapshot does not bring back."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def apply(self, record_type: int, fields: tuple[Any, ...], revision: int) -> RowChange | None:
        if record_type == TAKEN:
            self.seen.add(fields[0])
        return super().apply(record_type, fields, revision)

    def decide(self, command: bytes, revision: int, now_ms: int) -> Decision:
        name = command.decode()
        if name in self.seen:
            return Decision((), b"seen")
        return Decision([(TAKEN, (name, now_ms + _HOLD_MS))], b"new")


class Lying(Seats):
    """Does to the row something else than its description says."""

    def apply(self, record_type: int, fields: tuple[Any, ...], revision: int) -> RowChange | None:
        if record_type == TAKEN:
            fields = (fields[0], fields[1] + 1)
        return super().apply(record_type, fields, revision)


class Forgetting(Seats):
    """Restores all rows but one."""

    def restore(self, rows: Iterable[Row]) -> None:
        super().restore(list(rows)[1:])


class Shrinking(Seats):
    """A next version that has lost a column."""

    _TABLE = TableDescription("seats", NAME, ())
    description: ClassVar = MachineDescription("seats", 2, (_TABLE,), (upsert(TAKEN, "taken", _TABLE),))


@pytest.mark.parametrize(
    ("machine", "older", "said"),
    [
        (Counting, None, "pure: `decide`"),
        (Scribbling, None, "pure: `decide` of .* changes the state"),
        (Remembering, None, "deterministic|another state"),
        (Lying, None, "the description is true"),
        (Forgetting, None, "restores other rows"),
        (Shrinking, Seats, "column 'until_ms' is gone"),
    ],
)
def test_an_unsound_machine_is_found(
    machine: Callable[[], Seats], older: Callable[[], Seats] | None, said: str
) -> None:
    with pytest.raises(Exception, match=said):
        check_machine(machine, COMMANDS, older=older)


# ---- simulation


def test_a_sound_machine_is_simulated_and_enough_is_done() -> None:
    def invariant(machine: Any) -> None:
        assert machine.count("seats") <= 3

    summary = simulate(Seats, draw, seeds=4, invariant=invariant)
    assert summary.seeds == 4
    assert summary.acknowledged > 100
    assert summary.refused
    assert sum(summary.faults.values()) > 10


def draw_guests(rng: random.Random) -> bytes:
    return rng.choice([b"a", b"b", b"c=ann"])


def test_a_machine_is_rolled_to_its_next_version_while_everything_fails() -> None:
    summary = simulate(NextSeats, draw_guests, older=Seats, seeds=8)
    assert summary.acknowledged > 100
    assert summary.faults["upgrade"] >= 3 * summary.seeds
    assert summary.faults["downgrade"] > 0


class Careless(NextSeats):
    """Logs what its code knows, be the log as old as it may."""

    def loggable(self, records: Any) -> Any:
        return records


def test_the_simulation_finds_a_version_that_writes_what_not_all_can_fold() -> None:
    with pytest.raises(BrokenInvariantError, match="CorruptLogError"):
        simulate(Careless, draw_guests, older=Seats, seeds=8)
    with pytest.raises(InvalidDescriptionError, match="it is older"):
        simulate(Seats, draw_guests, older=NextSeats, seeds=1)


def test_a_seed_decides_everything() -> None:
    once, again = (simulate(Seats, draw, first_seed=3, seeds=1) for _ in range(2))
    assert once == again


class Drifting(Seats):
    """Folds by what its process has seen: each replica another state."""

    processes: ClassVar[list[int]] = []

    def __init__(self) -> None:
        super().__init__()
        self.processes.append(0)
        self.number = len(self.processes)

    def apply(self, record_type: int, fields: tuple[Any, ...], revision: int) -> RowChange | None:
        if record_type == TAKEN:
            fields = (fields[0], fields[1] + self.number)
        return super().apply(record_type, fields, revision)


class Crashing(Seats):
    """Cannot fold what it has logged."""

    def apply(self, record_type: int, fields: tuple[Any, ...], revision: int) -> RowChange | None:
        if record_type == LEFT:
            raise RuntimeError("cannot")
        return super().apply(record_type, fields, revision)


@pytest.mark.parametrize(("machine", "said"), [(Drifting, "same-state"), (Crashing, "no-crash|convergence")])
def test_the_simulation_finds_replicas_that_differ_or_end_and_says_how_to_see_it_again(
    machine: Callable[[], Seats], said: str
) -> None:
    with pytest.raises(BrokenInvariantError, match=said) as found:
        simulate(machine, draw, seeds=20)
    assert "to run it again: first_seed=" in str(found.value)


def test_the_users_own_invariant_is_looked_at() -> None:
    def invariant(machine: Any) -> None:
        assert machine.count("seats") < 2, "two seats are taken"

    with pytest.raises(AssertionError, match=r"(?s)two seats are taken\n.*  seed 0"):
        simulate(Seats, draw, seeds=1, invariant=invariant)
