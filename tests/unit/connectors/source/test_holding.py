"""Hold of a query on its logs: registered before it plans, moved now and then, never further than it has read."""

from __future__ import annotations

import pytest

from connectors.source.holding import MOVE_S, QueryHold
from connectors.source.offsets import LogOffset, SnapshotOffset
from ledger.errors import MetadataUnavailableError
from rsm_spark.log.consumers import ConsumerError, ConsumerState, ConsumerTakenError


class _Access:
    def __init__(self) -> None:
        self.said: list[tuple[str, int]] = []
        self.notes: dict[str, ConsumerState] = {}
        self.error: Exception | None = None
        self.gone = 0

    def register_consumer(self, log: str, name: str, state: ConsumerState) -> int:
        assert name == "report"
        if self.error is not None:
            raise self.error
        self.notes[log] = state
        return max(state.revision, self.gone)

    def move_consumer(self, log: str, name: str, revision: int, holder: str) -> bool:
        assert (name, holder) == ("report", self.notes[log].holder)
        if self.error is not None:
            raise self.error
        self.said.append((log, revision))
        return True


class _World:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.access = _Access()
        self.hold = QueryHold("report", self.access, hold_ms=7, hold_bytes=8, clock=lambda: self.now_s)

    def move(self, revision: int, after_s: float = MOVE_S, log: str = "orders") -> None:
        self.now_s += after_s
        self.hold.move({log: LogOffset(3, 4, revision)})


def test_a_query_is_registered_once_with_the_last_record_that_it_does_not_need() -> None:
    world = _World()
    for _ in range(2):
        world.hold.begin({"orders": LogOffset(-1, 0, 1), "tasks": SnapshotOffset(2, 90, 5), "old": LogOffset(3, 4, 12)})
    assert {log: note.revision for log, note in world.access.notes.items()} == {"orders": 0, "tasks": 90, "old": 11}
    note = world.access.notes["orders"]
    assert (note.hold_ms, note.hold_bytes) == (7, 8)
    assert note.what.startswith("Spark stream, process ")


def test_a_position_is_written_every_few_seconds_and_at_the_end() -> None:
    world = _World()
    world.hold.begin({"orders": LogOffset(-1, 0, 1)})
    for revision in (11, 21, 31):
        world.move(revision, MOVE_S / 3)
    world.move(41, 0.1)
    assert world.access.said == [("orders", 30)]
    world.hold.flush()
    assert world.access.said == [("orders", 30), ("orders", 40)]
    world.hold.flush()
    assert len(world.access.said) == 2


def test_rows_of_a_snapshot_let_go_of_nothing_behind_it() -> None:
    world = _World()
    world.hold.begin({"orders": SnapshotOffset(2, 90, 0)})
    world.now_s += MOVE_S
    world.hold.move({"orders": SnapshotOffset(2, 90, 500)})
    assert world.access.said == []
    world.move(92)
    assert world.access.said == [("orders", 91)]


def test_a_log_that_appears_later_is_held_from_then_on() -> None:
    world = _World()
    world.hold.begin({"a": LogOffset(-1, 0, 1)})
    world.move(5, log="b")
    assert world.access.notes["b"].revision == 4


def test_what_cannot_be_registered_is_an_error_and_what_cannot_be_moved_is_tried_again() -> None:
    world = _World()
    world.access.error = ConsumerError("too many")
    with pytest.raises(ConsumerError):
        world.hold.begin({"orders": LogOffset(-1, 0, 1)})
    world.access.error = None
    world.hold.begin({"orders": LogOffset(-1, 0, 1)})
    world.access.error = MetadataUnavailableError("away")
    world.move(11)
    world.access.error = None
    world.hold.flush()
    assert world.access.said == [("orders", 10)]


def test_who_is_removed_or_replaced_reads_on_without_a_hold(caplog: pytest.LogCaptureFixture) -> None:
    world = _World()
    world.hold.begin({"orders": LogOffset(-1, 0, 1)})
    world.access.error = ConsumerTakenError("another reader")
    world.move(11)
    world.access.error = None
    world.access.notes.clear()
    world.move(21)
    world.hold.flush()
    assert (world.access.said, world.access.notes) == ([], {})
    assert [record.getMessage() for record in caplog.records] == [
        "log orders is not held for this query any more: another reader"
    ]


def test_what_the_log_has_lost_already_is_not_written_as_read() -> None:
    world = _World()
    world.access.gone = 50
    world.hold.begin({"orders": LogOffset(-1, 0, 1)})
    world.move(41)
    assert world.access.said == []
    world.move(61)
    assert world.access.said == [("orders", 60)]
