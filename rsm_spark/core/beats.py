"""Suspicion of processes that are silent: who is asked about, who is buried, pure.

The event loop of every replica beats, and all others listen to the leader's. Where the next in line hears nothing any
more, it asks the others, and only if one of them hears nothing either, and none hears it, is the leader buried: its
place in the election goes, as if its session had ended. Being wrong costs a failover and nothing else: who leads is
decided by claim and fence.

    new        heard less than `_WARM_BEATS` times       -> never suspected: its session tells
    heard      the last beat is younger than its limit   -> nothing is done
    silent     nothing for longer than its limit         -> the others are asked, again and again with pauses
    buried     silent, and the others agree              -> once; then `calm_s` without another burial

1. The limit is `silence_s`, or twice the longest pause between the last beats, where network or process is slow.
2. Who stood still itself has heard nothing because of that: its time begins anew, as a listener and as a witness.
3. After each change of leader nobody is buried for `calm_s`, and twice as long for each further one within ten minutes.
4. Without an answer of any other replica, where there are others, nobody is buried: the one cut off may be oneself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import Final

import msgspec

_WARM_BEATS: Final = 10
_PAUSES_KEPT: Final = 100
_LIMIT_S_MAX: Final = 1.5
"""A slow network cannot put suspicion off for longer: soon after, the session with the metadata store tells."""
_WITNESS: Final = 0.5
"""Part of its limit after which a witness says "silent": it is asked because somebody else has waited for all of it."""
_LATE: Final = 0.5
"""Part of `silence_s` that two looks may lie apart; beyond it, whoever looks stood still."""
_ASK_AGAIN_S: Final = 0.1
_ASK_AGAIN_S_MAX: Final = 1.0
_MEMORY_S: Final = 600.0
_DOUBLINGS_MAX: Final = 6


class BeatAnswer(Enum):
    """Word of a witness about a process."""

    HEARS = "hears"
    SILENT = "silent"
    UNKNOWN = "unknown"  # it does not listen to it, or not for long enough, or stood still itself


class BeatRules(msgspec.Struct, frozen=True, kw_only=True):
    """Times of the protocol.

    Attributes:
        look_s: Between two looks, half of the time between two beats.
        silence_s: After which a process is suspected, at least.
        calm_s: After a change of leader, without a burial.

    """

    look_s: float = 0.05
    silence_s: float = 0.3
    calm_s: float = 5.0


class AskPeers(msgspec.Struct, frozen=True):
    """Ask all other live replicas whether they hear this process; answer with `on_answers`."""

    process: str
    number: int


class _HeardProcess:
    """One process that is listened to."""

    def __init__(self, now: float) -> None:
        self.beat_count = 0
        self.heard_s = now
        self.pauses: deque[float] = deque(maxlen=_PAUSES_KEPT)

    def limit_s(self, silence_s: float) -> float:
        return min(max(silence_s, 2 * max(self.pauses, default=0.0)), max(silence_s, _LIMIT_S_MAX))


class BeatWatcher:
    """Knowledge of one replica about the beats of others. Times are those of its own monotonic clock.

    Args:
        rules: The times.
        now: The time.

    """

    def __init__(self, rules: BeatRules, now: float) -> None:
        self._rules = rules
        self._heard: dict[str, _HeardProcess] = {}
        self._before: str | None = None
        self._leader: str | None = None
        self._looked_s = self._awake_s = now
        self._question: AskPeers | None = None
        self._asked_s = 0.0
        self._numbers = 0
        self._pause_s = _ASK_AGAIN_S
        self._ask_at = now
        # When the leader changed, or somebody was buried, within `_MEMORY_S`; oldest first.
        self._changes: deque[float] = deque()

    # ---- what is listened to

    def listen(self, before: str | None, leader: str | None, now: float) -> tuple[str, ...]:
        """Take who stands before this replica in the line and who leads; return whom to listen to: the leader.

        Args:
            before: None = nobody, or this replica does not stand for election.
            leader: None = nobody, or not known.
            now: The time.

        """
        if before != self._before:
            self._before, self._question = before, None
            self._pause_s, self._ask_at = _ASK_AGAIN_S, now
        if leader is not None and leader != self._leader:
            if self._leader is not None:
                self._note_change(now)
            self._leader = leader
        wanted = () if leader is None else (leader,)
        self._heard = {name: self._heard.get(name) or _HeardProcess(now) for name in wanted}
        return wanted

    def on_beat(self, process: str, now: float) -> None:
        """Count a beat."""
        heard = self._heard.get(process)
        if heard is None:
            return
        if heard.beat_count and heard.heard_s >= self._awake_s:
            heard.pauses.append(now - heard.heard_s)
        heard.beat_count += 1
        heard.heard_s = now

    # ---- suspicion

    def look(self, now: float) -> AskPeers | None:
        """Look for silence; called every `look_s`. Return a question if there is one to ask."""
        if now - self._looked_s > _LATE * self._rules.silence_s:
            self._awake_s = now
        self._looked_s = now
        if self._before is None or self._question is not None or now < self._ask_at or not self._is_calm(now):
            return None
        if self._judge(self._before, now, 1.0) is not BeatAnswer.SILENT:
            self._pause_s = _ASK_AGAIN_S
            return None
        self._numbers += 1
        self._question, self._asked_s = AskPeers(self._before, self._numbers), now
        return self._question

    def on_answers(self, question: AskPeers, answers: Sequence[BeatAnswer | None], now: float) -> bool:
        """Take what the other live replicas say, None for each that did not answer; return whether to bury.

        No answers at all: there is no other live replica.
        """
        if question != self._question:
            return False
        self._question = None
        self._ask_at = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, _ASK_AGAIN_S_MAX)
        stood_still = self._awake_s >= self._asked_s or now - self._looked_s > _LATE * self._rules.silence_s
        if stood_still or self._judge(question.process, now, 1.0) is not BeatAnswer.SILENT:
            return False
        if BeatAnswer.HEARS in answers or (answers and BeatAnswer.SILENT not in answers):
            return False
        self._changes.append(now)
        return True

    def answer(self, process: str, now: float) -> BeatAnswer:
        """Return what this replica can say as a witness."""
        if now - self._looked_s > _LATE * self._rules.silence_s:
            return BeatAnswer.UNKNOWN
        return self._judge(process, now, _WITNESS)

    # ---- inside

    def _judge(self, process: str, now: float, part: float) -> BeatAnswer:
        heard = self._heard.get(process)
        if heard is None or heard.beat_count < _WARM_BEATS:
            return BeatAnswer.UNKNOWN
        limit_s = part * heard.limit_s(self._rules.silence_s)
        if now - heard.heard_s < limit_s:
            return BeatAnswer.HEARS
        # It may have beaten while this process stood still.
        return BeatAnswer.SILENT if now - self._awake_s >= limit_s else BeatAnswer.UNKNOWN

    def _note_change(self, now: float) -> None:
        """Count a change of leader, unless it is the end of a burial that was counted."""
        if not self._changes or now - self._changes[-1] > self._rules.calm_s:
            self._changes.append(now)

    def _is_calm(self, now: float) -> bool:
        while self._changes and now - self._changes[0] > _MEMORY_S:
            self._changes.popleft()
        if not self._changes:
            return True
        doublings = min(len(self._changes) - 1, _DOUBLINGS_MAX)
        return now - self._changes[-1] >= self._rules.calm_s * 2.0**doublings
