"""Distributions of YCSB, which choose the next record (Cooper et al., "Benchmarking Cloud Serving Systems", 2010).

The zipfian draw is that of Gray et al., "Quickly Generating Billion-Record Synthetic Databases", 1994: no table, and a
number of records that may grow. Pure: the random generator comes in.
"""

from __future__ import annotations

import random
from typing import Protocol

THETA = 0.99
"""YCSB's zipfian constant."""

_FNV_OFFSET = 0xCBF29CE484222325
_FNV_PRIME = 1099511628211
_MASK = (1 << 64) - 1
# YCSB scrambles a draw among so many, so that the popularity of records does not change when some are added.
_SCRAMBLED_COUNT = 10_000_000_000
_SCRAMBLED_ZETA = 26.46902820178302  # Sum of 1 / n^THETA over them: takes minutes to compute.


def fnv64(number: int) -> int:
    """Return the FNV-1 hash of the 8 bytes of a number, lowest first, as YCSB takes it; 63 bits."""
    hashed = _FNV_OFFSET
    for _ in range(8):
        hashed = ((hashed ^ (number & 0xFF)) * _FNV_PRIME) & _MASK
        number >>= 8
    signed = hashed - (1 << 64) if hashed >> 63 else hashed
    return abs(signed)


class RecordNumbers:
    """Numbers of records: handed out before their insert, counted once everything below is inserted.

    Args:
        count: Records that are there already, 0 to count - 1.

    """

    def __init__(self, count: int) -> None:
        self._next = count
        self._inserted_count = count
        self._ahead: set[int] = set()

    @property
    def inserted_count(self) -> int:
        """Records 0 to this one, exclusive, can be read."""
        return self._inserted_count

    def take(self) -> int:
        """Return the number of a new record."""
        number = self._next
        self._next += 1
        return number

    def acknowledge(self, number: int) -> None:
        """Note that a record that was taken is inserted."""
        self._ahead.add(number)
        while self._inserted_count in self._ahead:
            self._ahead.remove(self._inserted_count)
            self._inserted_count += 1


class KeyChooser(Protocol):
    """Chooses records to read or to update."""

    def choose(self, rng: random.Random) -> int:
        """Return the number of a record that can be read."""
        ...


class Zipfian:
    """Numbers 0 to count - 1; number n is drawn about 1 / (n + 1)^theta as often as number 0.

    Args:
        count: May be raised later, which costs a step for each one more.
        theta: Between 0 and 1, exclusive.
        zeta: Sum of 1 / n^theta for n = 1 to count, if known.

    """

    def __init__(self, count: int, theta: float = THETA, zeta: float | None = None) -> None:
        self._theta = theta
        self._alpha = 1 / (1 - theta)
        self._zeta_2 = 1 + 0.5**theta
        self._count = 0 if zeta is None else count
        self._zeta = 0.0 if zeta is None else zeta
        self._eta = 0.0
        self._grow(count)

    def draw(self, rng: random.Random, count: int | None = None) -> int:
        """Return a number; `count` is the number of numbers from now on, never lower than before."""
        if count is not None and count != self._count:
            self._grow(count)
        uniform = rng.random()
        scaled = uniform * self._zeta
        if scaled < 1:
            return 0
        if scaled < self._zeta_2:
            return min(1, self._count - 1)
        number = int(self._count * (self._eta * uniform - self._eta + 1) ** self._alpha)
        return min(number, self._count - 1)

    def _grow(self, count: int) -> None:
        assert count >= max(1, self._count)
        for number in range(self._count + 1, count + 1):
            self._zeta += 1 / number**self._theta
        self._count = count
        self._eta = 0.0 if count <= 2 else (1 - (2 / count) ** (1 - self._theta)) / (1 - self._zeta_2 / self._zeta)


class ScrambledZipfian:
    """A few records are popular, and lie anywhere: YCSB's `zipfian` request distribution.

    Args:
        numbers: Which records there are.
        expected_count: So many there may be in the end: which are popular does not change while some are added.

    """

    def __init__(self, numbers: RecordNumbers, expected_count: int | None = None) -> None:
        self._numbers = numbers
        self._expected_count = max(numbers.inserted_count, expected_count or 0)
        self._zipfian = Zipfian(_SCRAMBLED_COUNT, THETA, _SCRAMBLED_ZETA)

    def choose(self, rng: random.Random) -> int:
        """Return the number of a record."""
        while True:
            number = fnv64(self._zipfian.draw(rng)) % self._expected_count
            if number < self._numbers.inserted_count:
                return number


class Latest:
    """The records inserted last are the most popular: YCSB's `latest` request distribution.

    Args:
        numbers: Which records there are.

    """

    def __init__(self, numbers: RecordNumbers) -> None:
        self._numbers = numbers
        self._zipfian = Zipfian(numbers.inserted_count)

    def choose(self, rng: random.Random) -> int:
        """Return the number of a record."""
        count = self._numbers.inserted_count
        return count - 1 - self._zipfian.draw(rng, count)
