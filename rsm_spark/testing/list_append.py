"""Checks whether histories of transactions that append to lists and read lists are strictly serializable.

Each value is appended once, so a list that was read tells which appends stood before it, and in which order. From that
follow pairs of transactions one of which must come before the other:

    ww   it appended the value that stands before the other's
    wr   it appended the last value that the other one read
    rw   it read a list that did not yet have what the other one appended
    rt   it had ended before the other one began

A history in which they make no circle can be put into one order that everybody would have seen. The method is that of
Elle (Kingsbury, Alvaro: "Elle: inferring isolation anomalies from experimental observations").
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple


class AppendOutcome(StrEnum):
    """Outcome of a transaction. OK: done. FAILED: certainly not done. UNKNOWN: perhaps."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


class ListRead(NamedTuple):
    """A transaction read this list under this key."""

    key: Hashable
    values: tuple[Hashable, ...]


class ListWrite(NamedTuple):
    """A transaction appended this value, of which there is one, to the list under this key."""

    key: Hashable
    value: Hashable


class AppendTransaction(NamedTuple):
    """One transaction.

    Attributes:
        number: Its own; only for explanations.
        steps: What it did, in order.
        began_s: Monotonic time before it.
        ended_s: Monotonic time after it; infinite if its outcome is unknown.
        fate: Its outcome.

    """

    number: int
    steps: tuple[ListRead | ListWrite, ...]
    began_s: float
    ended_s: float
    fate: AppendOutcome


def check_lists(history: Sequence[AppendTransaction]) -> list[str]:
    """Return what is wrong with a history, in words; empty: it is strictly serializable."""
    return _Judge(history).judge()


class _Judge:
    def __init__(self, history: Sequence[AppendTransaction]) -> None:
        self._history = history
        self._faults: list[str] = []
        # Place in the history of who appended it, by (key, value).
        self._writer: dict[tuple[Hashable, Hashable], int] = {}
        self._longest: dict[Hashable, tuple[Hashable, ...]] = defaultdict(tuple)
        self._edges: dict[int, dict[int, str]] = defaultdict(dict)

    def judge(self) -> list[str]:
        self._note_writers()
        for place, one in enumerate(self._history):
            if one.fate is AppendOutcome.OK:
                self._look_inside(place, one)
        if not self._faults:
            self._draw()
            circle = _circle(self._edges, range(len(self._history)))
            if circle:
                self._faults.append(self._told(circle))
        return self._faults

    def _note_writers(self) -> None:
        for place, one in enumerate(self._history):
            for step in one.steps:
                if isinstance(step, ListWrite):
                    assert (step.key, step.value) not in self._writer, "each value is appended once"
                    self._writer[step.key, step.value] = place

    def _look_inside(self, place: int, one: AppendTransaction) -> None:
        """Check each read by itself, and against what the transaction did before it."""
        own: dict[Hashable, list[Hashable]] = defaultdict(list)
        seen: dict[Hashable, tuple[Hashable, ...]] = {}
        for step in one.steps:
            if isinstance(step, ListWrite):
                own[step.key].append(step.value)
                continue
            values, mine = step.values, tuple(own[step.key])
            if len(set(values)) != len(values):
                self._faults.append(f"transaction {one.number} read a value twice in {step}")
            before = values[: len(values) - len(mine)]
            if values[len(before) :] != mine or seen.get(step.key, before) != before:
                self._faults.append(f"transaction {one.number} did not read what it had read and appended: {step}")
            seen[step.key] = before
            self._look_at_writers(place, one, ListRead(step.key, before))
            longest = self._longest[step.key]
            if longest[: len(values)] != values and values[: len(longest)] != longest:
                self._faults.append(f"transaction {one.number} read {step}, another one {longest}: no order has both")
            elif len(values) > len(longest):
                self._longest[step.key] = values

    def _look_at_writers(self, place: int, one: AppendTransaction, read: ListRead) -> None:
        for value in read.values:
            writer = self._writer.get((read.key, value))
            if writer is None or self._history[writer].fate is AppendOutcome.FAILED:
                self._faults.append(f"transaction {one.number} read {value!r} of {read.key!r}, which was never kept")
        if read.values:
            last = self._writer.get((read.key, read.values[-1]), place)
            final = [
                step.value for step in self._history[last].steps if isinstance(step, ListWrite) and step.key == read.key
            ]
            if last != place and final and final[-1] != read.values[-1]:
                text = (
                    f"transaction {one.number} read {read.values[-1]!r} of {read.key!r}, in the middle of another one"
                )
                self._faults.append(text)

    def _draw(self) -> None:
        """Note who must come before whom."""
        beyond: dict[Hashable, list[int]] = defaultdict(list)  # Done, and read by nobody.
        for (key, value), writer in self._writer.items():
            if self._history[writer].fate is AppendOutcome.OK and value not in self._longest[key]:
                beyond[key].append(writer)
        for key, longest in self._longest.items():
            writers = [self._writer[key, value] for value in longest]
            for before, after in itertools.pairwise(writers):
                self._edge(before, after, "ww")
            for after in beyond[key] if writers else ():
                self._edge(writers[-1], after, "ww")
        for place, one in enumerate(self._history):
            if one.fate is AppendOutcome.OK:
                for step in one.steps:
                    if isinstance(step, ListRead):
                        self._draw_read(place, step, beyond)
        self._draw_times()

    def _draw_read(self, place: int, read: ListRead, beyond: Mapping[Hashable, list[int]]) -> None:
        longest = self._longest[read.key]
        if read.values:
            self._edge(self._writer[read.key, read.values[-1]], place, "wr")
        if len(read.values) < len(longest):
            self._edge(place, self._writer[read.key, longest[len(read.values)]], "rw")
        else:
            for writer in beyond.get(read.key, ()):
                self._edge(place, writer, "rw")

    def _draw_times(self) -> None:
        """Note who had ended before whom: by way of moments, each after those before it."""
        ends = sorted((one.ended_s, place) for place, one in enumerate(self._history) if one.fate is AppendOutcome.OK)
        moment = {place: -1 - number for number, (_, place) in enumerate(ends)}
        for number, (_, place) in enumerate(ends):
            self._edge(place, moment[place], "rt")
            if number:
                self._edge(-number, -1 - number, "rt")
        begins = sorted((one.began_s, place) for place, one in enumerate(self._history))
        number = 0
        for began_s, place in begins:
            while number < len(ends) and ends[number][0] < began_s:
                number += 1
            if number and self._history[place].fate is not AppendOutcome.FAILED:
                self._edge(-number, place, "rt")

    def _edge(self, before: int, after: int, kind: str) -> None:
        if before != after:
            self._edges[before].setdefault(after, kind)

    def _told(self, circle: Sequence[int]) -> str:
        parts: list[str] = []
        shown = [place for place in circle if place >= 0]
        for place, after in zip(circle, [*circle[1:], circle[0]], strict=True):
            if place >= 0:
                parts.append(f"{self._history[place].number} -{self._edges[place][after]}->")
        steps = "; ".join(f"{self._history[place].number}: {self._history[place].steps}" for place in shown)
        return (
            f"transactions that must each come before the next one: {' '.join(parts)} {parts[0].split()[0]} ({steps})"
        )


def _circle(edges: Mapping[int, Mapping[int, str]], places: Iterable[int]) -> list[int]:
    """Return nodes each of which has an edge to the next one, the last to the first; empty: there are none."""
    state: dict[int, bool] = {}  # True: on the path. False: nothing more to be found from it.
    for start in places:
        if start in state:
            continue
        path = [start]
        state[start] = True
        waiting = [iter(edges.get(start, {}))]
        while path:
            after = next(waiting[-1], None)
            if after is None:
                waiting.pop()
                state[path.pop()] = False
            elif after not in state:
                state[after] = True
                path.append(after)
                waiting.append(iter(edges.get(after, {})))
            elif state[after]:
                return _shortened(edges, path[path.index(after) :])
    return []


def _shortened(edges: Mapping[int, Mapping[int, str]], circle: list[int]) -> list[int]:
    """Leave out what an edge passes over."""
    begin = 0
    while begin < len(circle):
        for end in range(len(circle) - 1, begin + 1, -1):
            if circle[end] in edges.get(circle[begin], {}):
                del circle[begin + 1 : end]
                break
        begin += 1
    return circle
