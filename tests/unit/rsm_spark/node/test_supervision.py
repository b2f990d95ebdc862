"""Which process of a machine is started, started again and ended, and when."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rsm_spark.node.core.supervision import (
    FAULT_CODES,
    PATIENCE_MS,
    PAUSE_MS_MAX,
    STAYED_MS,
    ChildPhase,
    Effect,
    EndChild,
    SayLine,
    StartChild,
    Supervision,
)

NAMES = ("zookeeper", "bookie", "store")


def _new() -> Supervision:
    return Supervision(dict.fromkeys(NAMES, 10_000))


def _acts(effects: list[Effect]) -> list[StartChild | EndChild]:
    return [effect for effect in effects if not isinstance(effect, SayLine)]


def _up(supervision: Supervision, now_ms: int = 0) -> None:
    effects = supervision.on_time(now_ms)
    for number, name in enumerate(NAMES):
        assert _acts(effects) == [StartChild(name)]
        supervision.on_started(name, 100 + number, now_ms)
        effects = supervision.on_ready(name, now_ms)
    assert _acts(effects) == []


def test_each_starts_when_the_one_before_is_ready() -> None:
    _up(_new())


def test_one_that_is_not_ready_holds_the_next_one_up_for_a_while_only() -> None:
    supervision = _new()
    assert supervision.on_time(5) == [StartChild("zookeeper")]
    supervision.on_started("zookeeper", 1, 5)
    assert supervision.due_ms() == 5 + PATIENCE_MS
    assert supervision.on_time(4 + PATIENCE_MS) == []
    line, start = supervision.on_time(5 + PATIENCE_MS)
    assert start == StartChild("bookie")
    assert line == SayLine("zookeeper is not ready after 15 s: bookie starts anyway")


def test_one_that_fails_at_its_start_holds_nobody_up_for_ever() -> None:
    supervision = _new()
    now_ms, started = 0, []
    while "bookie" not in started:
        for effect in _acts(supervision.on_time(now_ms)):
            assert isinstance(effect, StartChild)
            started.append(effect.name)
            if effect.name == "zookeeper":
                supervision.on_ended("zookeeper", "ended with exit code 1", now_ms)
        now_ms = supervision.due_ms()
    assert started.count("zookeeper") > 2
    assert now_ms < 3 * PATIENCE_MS


def test_pauses_double_and_begin_anew_after_a_stay() -> None:
    supervision = _new()
    _up(supervision)
    now_ms, pauses = STAYED_MS, []
    for _ in range(7):
        supervision.on_ended("store", "ended with exit code 1", now_ms)
        pauses.append(supervision.children["store"].pause_ms)
        now_ms += pauses[-1]
        assert _acts(supervision.on_time(now_ms - 1)) == []
        assert _acts(supervision.on_time(now_ms)) == [StartChild("store")]
        supervision.on_started("store", 9, now_ms)
        supervision.on_ready("store", now_ms)
    assert pauses == [1_000, 2_000, 4_000, 8_000, 16_000, PAUSE_MS_MAX, PAUSE_MS_MAX]
    now_ms += STAYED_MS
    assert SayLine("store was ended by SIGKILL; starts again in 1 s") in supervision.on_ended(
        "store", "was ended by SIGKILL", now_ms
    )
    assert supervision.children["store"].restarts == 7


def test_ends_over_a_fault_are_counted_by_their_exit_code() -> None:
    supervision = _new()
    _up(supervision)
    faults = supervision.children["store"].faults
    assert faults == dict.fromkeys(FAULT_CODES, 0)
    for code in (74, 1, 6, 74, 0, -9):
        supervision.on_ended("store", f"ended with exit code {code}", 0, code=code)
    assert faults == {**dict.fromkeys(FAULT_CODES, 0), 1: 1, 74: 2}
    supervision.on_ended("bookie", "cannot be started: no memory", 0)
    assert not any(supervision.children["bookie"].faults.values())


def test_they_end_in_the_opposite_order_and_are_killed_if_they_do_not() -> None:
    supervision = _new()
    _up(supervision)
    supervision.on_ended("bookie", "ended with exit code 74", 100)  # In a pause: nothing is to be ended.
    assert _acts(supervision.end("SIGTERM", 200)) == [EndChild("store", is_kill=False)]
    assert supervision.due_ms() == 10_200
    assert _acts(supervision.on_time(10_200)) == [EndChild("store", is_kill=True)]
    assert _acts(supervision.on_ended("store", "was ended by SIGKILL", 10_300)) == [
        EndChild("zookeeper", is_kill=False)
    ]
    assert not supervision.is_over
    assert _acts(supervision.on_ended("zookeeper", "ended with exit code 0", 10_400)) == []
    assert supervision.is_over
    assert supervision.due_ms() is None


def test_the_second_signal_kills_all_that_run() -> None:
    supervision = _new()
    _up(supervision)
    supervision.end("SIGTERM", 0)
    assert _acts(supervision.end("SIGTERM", 1)) == [EndChild(name, is_kill=True) for name in NAMES]


def test_without_anything_that_runs_the_end_is_at_once() -> None:
    supervision = _new()
    supervision.end("SIGTERM", 0)
    assert supervision.is_over


@given(st.data())
def test_nothing_runs_twice_or_after_the_end_and_every_pause_ends(data: st.DataObject) -> None:
    """Safety: a process is started only while it does not run. Liveness: without the end, each runs in the end."""
    supervision, now_ms = _new(), 0
    running: set[str] = set()

    def carry_out(effects: list[Effect]) -> None:
        for effect in _acts(effects):
            if isinstance(effect, StartChild):
                assert effect.name not in running
                assert not supervision.is_ending
                if data.draw(st.booleans(), label="starts"):
                    running.add(effect.name)
                    carry_out(supervision.on_started(effect.name, 7, now_ms))
                else:
                    carry_out(supervision.on_ended(effect.name, "cannot be started", now_ms))
            else:
                assert effect.name in running

    for _ in range(data.draw(st.integers(0, 30))):
        now_ms += data.draw(st.integers(0, 40_000))
        carry_out(supervision.on_time(now_ms))
        if running:
            name = data.draw(st.sampled_from(sorted(running)))
            match data.draw(st.sampled_from(["ready", "ended", "nothing"])):
                case "ready":
                    carry_out(supervision.on_ready(name, now_ms))
                case "ended":
                    running.discard(name)
                    carry_out(supervision.on_ended(name, "ended with exit code 1", now_ms))
    if data.draw(st.booleans(), label="end"):
        carry_out(supervision.end("SIGTERM", now_ms))
        while running:
            name = next(name for name in reversed(NAMES) if name in running)
            assert supervision.children[name].phase is ChildPhase.ENDING
            running.discard(name)
            carry_out(supervision.on_ended(name, "ended with exit code 0", now_ms))
        assert supervision.is_over
    else:
        for _ in range(1_000):
            if len(running) == len(NAMES):
                break
            now_ms = max(now_ms, supervision.due_ms() or now_ms)  # None: not begun yet
            for effect in _acts(supervision.on_time(now_ms)):
                running.add(effect.name)
                supervision.on_started(effect.name, 7, now_ms)
        assert running == set(NAMES)
