"""Bounds on what is under way for etcd's clients: one of them has a part of it at most, and the others the rest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from rsm_spark.map.etcd import errors as e

_CALLS_MAX = 4_000
_BYTES_MAX = 64 * 1024 * 1024
_PART = 4
"""One caller has this part of either."""
_CALL_BYTES = 1_000


class WorkBounds:
    """Calls without an answer, and their bytes, by caller.

    Args:
        calls_max: Of all callers.
        bytes_max: Of all callers.

    Attributes:
        calls: Under way.
        refused_count: Calls that were one too many.

    """

    def __init__(self, calls_max: int = _CALLS_MAX, bytes_max: int = _BYTES_MAX) -> None:
        self._calls_max = calls_max
        self._bytes_max = bytes_max
        self.calls = 0
        self.refused_count = 0
        self._bytes = 0
        self._of: dict[str, tuple[int, int]] = {}

    @contextmanager
    def room(self, owner: str, size: int) -> Iterator[WorkRoom]:
        """Have room for a call while it is under way.

        Args:
            owner: Whose call.
            size: Its bytes.

        Raises:
            EtcdError: There is none.

        """
        calls, _ = self._of.get(owner, (0, 0))
        if calls >= self._calls_max // _PART or self.calls >= self._calls_max:
            self._refuse()
        size += _CALL_BYTES
        self._check_bytes(owner, size)
        self.calls += 1
        self._hold(owner, 1, size)
        room = WorkRoom(self, owner, size)
        try:
            yield room
        finally:
            self.calls -= 1
            self._hold(owner, -1, -room.size)

    def resize(self, owner: str, before: int, after: int) -> None:
        """Have other bytes for a call than before; see `room`."""
        if after > before:
            self._check_bytes(owner, after - before)
        self._hold(owner, 0, after - before)

    def _check_bytes(self, owner: str, more: int) -> None:
        _, held = self._of.get(owner, (0, 0))
        is_much = held and held + more > self._bytes_max // _PART
        if is_much or (self._bytes and self._bytes + more > self._bytes_max):
            self._refuse()

    def _refuse(self) -> NoReturn:
        self.refused_count += 1
        raise e.exhausted(e.TOO_MANY_REQUESTS)

    def _hold(self, owner: str, calls: int, size: int) -> None:
        self._bytes += size
        before, held = self._of.get(owner, (0, 0))
        self._of[owner] = (before + calls, held + size)
        if not before + calls:
            del self._of[owner]


class WorkRoom:
    """Room of one call.

    Args:
        bounds: Whose.
        owner: Whose call.
        size: Its bytes.

    Attributes:
        size: Its bytes now.

    """

    def __init__(self, bounds: WorkBounds, owner: str, size: int) -> None:
        self._bounds = bounds
        self._owner = owner
        self.size = size

    def resize(self, size: int) -> None:
        """Hold so many bytes from now on.

        Raises:
            EtcdError: There is no room; it holds what it held.

        """
        size += _CALL_BYTES
        if size != self.size:
            self._bounds.resize(self._owner, self.size, size)
            self.size = size
