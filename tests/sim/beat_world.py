"""A world of replicas that beat: freezes, one-way cuts, slow networks, slow take-overs; the suspicion is the product's.

Time goes in steps of 10 ms. The election and the take-over are the simplest thing that could be; a session with the
metadata store ends after 2 s of standing still, and never by a cut: peers are cut off from each other alone.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from rsm_spark.core.beats import AskPeers, BeatAnswer, BeatRules, BeatWatcher

__all__ = ["BeatWorld", "BrokenBeatError"]

STEP_S = 0.01
_SESSION_S = 2.0
_ASK_S = 0.2
_HEARD_S = 1.0
"""Whoever was not frozen, over a link that was whole, for this long has been heard."""
_QUICK_S = 1.3


class BrokenBeatError(AssertionError):
    """What must never happen has happened."""


@dataclass
class _Replica:
    name: str
    watcher: BeatWatcher
    boot: int = 0
    frozen_until: float = 0.0
    frozen_at: float | None = None
    next_beat: float = 0.0
    next_look: float = 0.0
    thawed_at: float = -100.0
    inbox: list[str] = field(default_factory=list)
    listening: tuple[str, ...] = ()
    leader: str | None = None


class BeatWorld:
    """Replicas in a line."""

    def __init__(self, seed: int, count: int, *, slow_s: float = 0.0, take_over_s: float = 0.2) -> None:
        self.rng = random.Random(seed)
        self.now = 10.0
        self.slow_s, self.take_over_s = slow_s, take_over_s
        self.replicas = {f"r{number}": self._new(f"r{number}") for number in range(count)}
        self.line = list(self.replicas)
        self.leader: str | None = None
        self.leads_at = self.now
        # (from, to) -> until when nothing passes; since when the link is whole.
        self.cut_until: dict[tuple[str, str], float] = {}
        self.whole_since: dict[tuple[str, str], float] = {}
        self.flying: list[tuple[float, str, str]] = []
        self.questions: list[tuple[float, str, AskPeers, list[BeatAnswer | None]]] = []
        self.rejoins: list[tuple[float, str]] = []
        self.burials: list[tuple[float, str, str]] = []
        self.changes: list[float] = []
        self.must_be_quick: tuple[float, str] | None = None

    def _new(self, name: str) -> _Replica:
        return _Replica(name, BeatWatcher(BeatRules(), 10.0), next_beat=10 + self.rng.random() / 20)

    # ---- faults

    def freeze(self, name: str, seconds: float) -> None:
        """Have a process stand still."""
        replica = self.replicas[name]
        replica.frozen_at = self.now
        replica.frozen_until = self.now + seconds

    def cut(self, source: str, target: str, seconds: float) -> None:
        """Let nothing pass from source to target."""
        self.cut_until[source, target] = self.now + seconds

    def expect_a_quick_burial(self) -> None:
        """Say that the leader, about to be frozen for long, has to go soon: everybody else is well and calm."""
        assert self.leader is not None
        self.must_be_quick = (self.now, self.leader)

    # ---- time

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while self.now < end:
            self.now += STEP_S
            self._lead()
            self._deliver()
            for replica in self.replicas.values():
                self._live(replica)
            self._answer()
            self._check_quick()

    def _lead(self) -> None:
        for at, name in [one for one in self.rejoins if one[0] <= self.now]:
            self.rejoins.remove((at, name))
            if self.replicas[name].frozen_at is not None:
                self.rejoins.append((self.now + 0.3, name))
            elif name not in self.line:
                self.line.append(name)
        first = self.line[0] if self.line else None
        if first != self.leader:
            if self.leader is not None:
                self.changes.append(self.now)
            self.leader, self.leads_at = first, self.now + self.rng.uniform(0.5, 1.5) * self.take_over_s

    def _passes(self, source: str, target: str) -> bool:
        if self.cut_until.get((source, target), 0.0) > self.now:
            self.whole_since[source, target] = self.now
            return False
        return True

    def _deliver(self) -> None:
        due = [one for one in self.flying if one[0] <= self.now]
        self.flying = [one for one in self.flying if one[0] > self.now]
        for _, source, target in due:
            replica = self.replicas[target]
            if replica.frozen_at is not None:
                replica.inbox.append(source)
            else:
                replica.watcher.on_beat(source, self.now)

    def _live(self, replica: _Replica) -> None:
        if replica.frozen_at is not None:
            if self.now < replica.frozen_until:
                if self.now - replica.frozen_at >= _SESSION_S and replica.name in self.line:
                    self.line.remove(replica.name)
                    self.rejoins.append((replica.frozen_until + 0.3, replica.name))
                return
            replica.frozen_at, replica.thawed_at = None, self.now
            late_s = self.rng.random() * 0.1  # Its sockets are read by threads, which have to wake first.
            self.flying += [(self.now + late_s, source, replica.name) for source in replica.inbox]
            replica.inbox.clear()
        if self.now >= replica.next_beat:
            replica.next_beat = self.now + 0.1
            for other in self.replicas.values():
                if replica.name in other.listening and self._passes(replica.name, other.name):
                    slow_s = self.rng.random() * self.slow_s if self.rng.random() < 0.05 else 0.0
                    self.flying.append((self.now + self.rng.uniform(0, 0.02) + slow_s, replica.name, other.name))
        if self.now >= replica.next_look:
            self._look(replica)

    def _look(self, replica: _Replica) -> None:
        replica.next_look = self.now + 0.05
        place = self.line.index(replica.name) if replica.name in self.line else 0
        before = self.line[place - 1] if place else None
        if self.now >= self.leads_at:
            replica.leader = self.leader
        leader = replica.leader if replica.leader != replica.name else None
        replica.listening = replica.watcher.listen(before, leader, self.now)
        question = replica.watcher.look(self.now)
        if question is not None:
            answers = [
                self._ask(replica.name, other.name, question.process)
                for other in self.replicas.values()
                if other.name not in (replica.name, question.process) and other.name in self.line
            ]
            asked_s = self.rng.uniform(0.01, _ASK_S) if answers else 0.0
            self.questions.append((self.now + asked_s, replica.name, question, answers))

    def _ask(self, source: str, target: str, process: str) -> BeatAnswer | None:
        witness = self.replicas[target]
        if not self._passes(source, target) or not self._passes(target, source) or witness.frozen_at is not None:
            return None
        return witness.watcher.answer(process, self.now)

    def _answer(self) -> None:
        for one in [one for one in self.questions if one[0] <= self.now]:
            _, asker, question, answers = one
            if self.replicas[asker].frozen_at is not None:
                continue
            self.questions.remove(one)
            if self.replicas[asker].watcher.on_answers(question, answers, self.now):
                self._bury(asker, question.process)

    def _bury(self, by: str, name: str) -> None:
        self._check_burial(by, name)
        self.burials.append((self.now, by, name))
        if name in self.line:
            self.line.remove(name)
            self.rejoins.append((self.now + self.rng.uniform(0.1, 0.5), name))

    # ---- what must hold

    def _was_heard(self, name: str, by: str) -> bool:
        """Tell whether a replica has certainly heard another one in the last moments."""
        source, target = self.replicas[name], self.replicas[by]
        self._passes(name, by)
        is_well = all(one.frozen_at is None and self.now - one.thawed_at > _HEARD_S for one in (source, target))
        return is_well and self.now - self.whole_since.get((name, by), 0.0) > _HEARD_S and name in target.listening

    def _check_burial(self, by: str, name: str) -> None:
        source = self.replicas[name]
        if not self.slow_s:
            self._passes(name, by)
            is_whole = self.now - self.whole_since.get((name, by), 0.0) > _HEARD_S
            if is_whole and source.frozen_at is None and self.now - source.thawed_at > _HEARD_S:
                raise BrokenBeatError(f"sleeper: {by} buries {name}, which has beaten all the time")
            witnesses = [one for one in self.replicas if one not in (by, name)]
            if len(self.replicas) == 3 and any(self._was_heard(name, witness) for witness in witnesses):
                raise BrokenBeatError(f"heard: {by} buries {name}, which {witnesses} hears")
        before = [at for at, who, _ in self.burials if who == by]
        if before and self.now - before[-1] < BeatRules().calm_s:
            raise BrokenBeatError(f"calm: {by} buries again after {self.now - before[-1]:.1f} s")
        if len([at for at, _, _ in self.burials if at > self.now - 120]) >= (3 if self.slow_s else 8):
            raise BrokenBeatError("calm: burials without end")

    def _check_quick(self) -> None:
        if self.must_be_quick is None:
            return
        since, name = self.must_be_quick
        if self.leader != name:
            self.must_be_quick = None
        elif self.now - since > _QUICK_S:
            raise BrokenBeatError(f"quick: {name} still leads {_QUICK_S} s after it was frozen")


def play(seed: int) -> BeatWorld:
    """Play one seed: a kind of trouble for a while."""
    rng = random.Random(f"beats {seed}")
    kind = rng.choice(("freezes", "cuts", "flaps", "apart", "slow", "slow take-over", "quick"))
    count = rng.choice((2, 3, 3))
    world = BeatWorld(
        seed,
        count,
        slow_s=rng.choice((0.4, 0.6)) if kind == "slow" else 0.0,
        take_over_s=rng.choice((3.0, 10.0)) if kind == "slow take-over" else 0.2,
    )
    world.run(3.0)
    names = list(world.replicas)
    if kind == "apart":  # For good, and in both directions.
        world.cut("r0", "r1", 1e9)
        world.cut("r1", "r0", 1e9)
        world.run(120.0)
    elif kind == "slow":
        world.run(120.0)
    elif kind == "quick":
        world.expect_a_quick_burial()
        world.freeze("r0", rng.uniform(1.5, 5.0))
        world.run(20.0)
    elif kind == "flaps":
        pairs = [("r0", "r1")] if rng.random() < 0.5 else [("r0", "r1"), ("r1", "r0")]
        for _ in range(40):
            for source, target in pairs:
                world.cut(source, target, rng.uniform(0.6, 1.5))
            world.run(rng.uniform(2.5, 4.0))
    else:
        for _ in range(25):
            if kind == "cuts":
                source, target = rng.sample(names, 2)
                world.cut(source, target, rng.uniform(0.2, 6.0))
            else:
                world.freeze(rng.choice(names), rng.choice((0.1, 0.25, 0.5, 1.0, 1.9, 4.0)))
            world.run(rng.uniform(0.2, 5.0))
    return world
