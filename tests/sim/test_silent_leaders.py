"""Suspicion of silent processes in a small world, seed by seed; bugs planted into it must be found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rsm_spark.core import beats
from rsm_spark.core.beats import AskPeers, BeatAnswer, BeatWatcher
from tests.sets import examples
from tests.sim.beat_world import BrokenBeatError, play

_SEEDS = 60
_BUDGET = 150


def test_only_silent_processes_are_buried_soon_and_not_without_end() -> None:
    worlds = [play(seed) for seed in range(examples(_SEEDS))]
    assert sum(len(world.burials) for world in worlds) > len(worlds)
    assert any(not world.burials for world in worlds)


def _ignore_who_hears(patch: pytest.MonkeyPatch) -> None:
    on_answers = BeatWatcher.on_answers

    def on_silence_alone(
        self: BeatWatcher, question: AskPeers, answers: Sequence[BeatAnswer | None], now: float
    ) -> bool:
        return on_answers(self, question, [BeatAnswer.SILENT for _ in answers], now)

    patch.setattr(BeatWatcher, "on_answers", on_silence_alone)


def _decide_alone(patch: pytest.MonkeyPatch) -> None:
    on_answers = BeatWatcher.on_answers

    def without_those_who_are_silent(
        self: BeatWatcher, question: AskPeers, answers: Sequence[BeatAnswer | None], now: float
    ) -> bool:
        return on_answers(self, question, [answer for answer in answers if answer is not None], now)

    patch.setattr(BeatWatcher, "on_answers", without_those_who_are_silent)


def _forget_own_sleep(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(beats, "_LATE", 1e9)


def _bury_in_turn(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BeatWatcher, "_is_calm", lambda _self, _now: True)


def _keep_one_pause(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(beats, "_DOUBLINGS_MAX", 0)


def _suspect_strangers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(beats, "_WARM_BEATS", 0)


def _forget_slowness(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(beats, "_PAUSES_KEPT", 0)


def _never_suspect(patch: pytest.MonkeyPatch) -> None:
    judge: Any = BeatWatcher._judge

    def kindly(self: BeatWatcher, process: str, now: float, part: float) -> BeatAnswer:
        found = judge(self, process, now, part)
        return BeatAnswer.UNKNOWN if found is BeatAnswer.SILENT else found

    patch.setattr(BeatWatcher, "_judge", kindly)


@pytest.mark.parametrize(("plant", "promise"), [
    (_ignore_who_hears, "heard"),
    (_decide_alone, "heard"),
    (_forget_own_sleep, "sleeper"),
    (_bury_in_turn, "calm"),
    (_keep_one_pause, "calm"),
    (_suspect_strangers, "calm"),
    (_forget_slowness, "calm"),
    (_never_suspect, "quick"),
])  # fmt: skip
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], promise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(_BUDGET):
        try:
            play(seed)
        except BrokenBeatError as error:
            if str(error).startswith(promise):
                print(f"found by seed {seed}")
                return
    pytest.fail(f"{_BUDGET} seeds found nothing")
