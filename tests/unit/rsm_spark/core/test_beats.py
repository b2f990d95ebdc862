"""Suspicion of silent processes, rule by rule; `tests/sim/test_silent_leaders.py` plays them together."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rsm_spark.core.beats import AskPeers, BeatAnswer, BeatRules, BeatWatcher

RULES = BeatRules()
HEARS, SILENT, UNKNOWN = BeatAnswer.HEARS, BeatAnswer.SILENT, BeatAnswer.UNKNOWN


class Stand:
    """One watcher, behind process "a", which leads."""

    def __init__(self, *, beats: int = 40) -> None:
        self.now, self.process = 100.0, "a"
        self.watcher = BeatWatcher(RULES, self.now)
        assert self.watcher.listen("a", "a", self.now) == ("a",)
        assert self.hear(beats) is None

    def hear(self, beats: int, every: float = 0.05) -> AskPeers | None:
        """Let beats come; return the first question."""
        found = None
        for _ in range(beats):
            found = found or self.wait(every)
            self.watcher.on_beat(self.process, self.now)
        return found

    def wait(self, seconds: float) -> AskPeers | None:
        """Let nothing come; return the first question."""
        end, found = self.now + seconds - 1e-9, None
        while self.now < end and found is None:
            self.now += 0.05
            found = self.watcher.look(self.now)
        return found

    def asks(self, seconds: float = 0.4) -> AskPeers:
        question = self.wait(seconds)
        assert question is not None
        return question

    def told(self, question: AskPeers, answers: Sequence[BeatAnswer | None]) -> bool:
        return self.watcher.on_answers(question, answers, self.now)


def test_a_silent_process_is_asked_about_and_buried_if_another_one_hears_nothing_either() -> None:
    stand = Stand()
    assert stand.wait(0.25) is None
    question = stand.asks(0.1)
    assert question.process == "a"
    assert stand.wait(0.2) is None  # One question at a time.
    assert stand.told(question, [SILENT])
    assert not stand.told(question, [SILENT])


@pytest.mark.parametrize(("answers", "buries"), [
    ([], True),  # There are no others.
    ([SILENT], True),
    ([SILENT, None], True),
    ([SILENT, UNKNOWN], True),
    ([HEARS], False),
    ([SILENT, HEARS], False),
    ([UNKNOWN], False),
    ([None, None], False),  # The one cut off may be oneself.
])  # fmt: skip
def test_the_others_decide(answers: list[BeatAnswer | None], buries: bool) -> None:
    stand = Stand()
    assert stand.told(stand.asks(), answers) is buries


def test_after_a_no_the_others_are_asked_again_with_growing_pauses() -> None:
    stand = Stand()
    question = stand.asks()
    assert not stand.told(question, [HEARS])
    asked = []
    for _ in range(100):
        again = stand.wait(0.05)
        if again is not None:
            asked.append(stand.now)
            assert not stand.told(again, [None])
    pauses = [later - earlier for earlier, later in zip(asked, asked[1:], strict=False)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == pytest.approx(1.0, abs=0.06)


def test_a_beat_that_comes_meanwhile_ends_the_suspicion() -> None:
    stand = Stand()
    question = stand.asks()
    stand.watcher.on_beat("a", stand.now)
    assert not stand.told(question, [SILENT])


def test_who_stood_still_does_not_suspect_and_bears_no_witness() -> None:
    stand = Stand()
    stand.now += 5.0
    assert stand.watcher.answer("a", stand.now) is UNKNOWN
    assert stand.watcher.look(stand.now) is None
    assert stand.watcher.answer("a", stand.now) is UNKNOWN
    assert stand.wait(0.2) is None
    question = stand.asks(0.2)
    stand.now += 3.0  # And while it waited for the answers.
    assert not stand.told(question, [SILENT])


def test_a_process_that_was_hardly_heard_is_not_suspected() -> None:
    stand = Stand(beats=9)
    assert stand.wait(10.0) is None
    assert stand.watcher.answer("a", stand.now) is UNKNOWN


def test_a_slow_process_or_network_gets_more_time() -> None:
    stand = Stand()
    assert stand.hear(5, every=0.25) is None
    assert stand.wait(0.45) is None
    assert stand.wait(0.1) is not None
    stand = Stand()
    stand.hear(3, every=5.0)  # Much slower: from here on its session tells sooner.
    assert stand.wait(1.4) is None


def test_a_witness_says_what_it_hears() -> None:
    stand = Stand()
    assert stand.watcher.answer("a", stand.now) is HEARS
    assert stand.watcher.answer("b", stand.now) is UNKNOWN
    stand.wait(0.1)
    assert stand.watcher.answer("a", stand.now) is HEARS
    stand.wait(0.1)
    assert stand.watcher.answer("a", stand.now) is SILENT  # Who asks has waited for longer.


def test_after_changes_of_leader_nobody_is_buried_for_ever_longer() -> None:
    stand = Stand()
    calm: list[float] = []
    for number in range(9):
        stand.process = f"leader-{number}"
        stand.watcher.listen(stand.process, stand.process, stand.now)
        changed = stand.now
        assert stand.hear(12) is None
        question = stand.asks(400.0)
        assert not stand.told(question, [HEARS])
        calm.append(stand.now - changed)
        stand.now = max(stand.now, changed + RULES.calm_s + 0.1)
    assert calm[:3] == pytest.approx([5.0, 10.0, 20.0], abs=0.6)
    assert 150 < max(calm) < 321  # Those of more than ten minutes ago are forgotten.


def test_a_burial_and_the_change_of_leader_that_follows_count_once() -> None:
    stand = Stand()
    assert stand.told(stand.asks(), [SILENT])
    buried = stand.now
    stand.wait(0.5)
    assert stand.watcher.listen("b", "b", stand.now) == ("b",)
    while stand.now < buried + 20:
        stand.now += 0.05
        if stand.now < buried + 4.0:
            stand.watcher.on_beat("b", stand.now)
        if stand.watcher.look(stand.now) is not None:
            break
    assert stand.now - buried == pytest.approx(5.0, abs=0.1)


def test_what_others_beat_is_not_counted_and_nobody_before_means_no_question() -> None:
    stand = Stand()
    stand.watcher.on_beat("stranger", stand.now)
    assert stand.watcher.listen(None, "a", stand.now) == ("a",)
    assert stand.wait(1.0) is None
    assert stand.watcher.answer("a", stand.now) is SILENT
    assert stand.watcher.listen(None, None, stand.now) == ()
    assert stand.watcher.answer("a", stand.now) is UNKNOWN
