"""Bounds on what is under way for etcd's clients: one of them has a part of it at most, and the others the rest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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
    def room(self, owner: str, size: int) -> Iterator[None]:
        """Have room for a call while it is under way.

        Args:
            owner: Whose call.
            size: Its bytes.

        Raises:
            EtcdError: There is none.

        """
        size += _CALL_BYTES
        calls, held = self._of.get(owner, (0, 0))
        is_much = calls >= self._calls_max // _PART or (held and held + size > self._bytes_max // _PART)
        if is_much or self.calls >= self._calls_max or (self._bytes and self._bytes + size > self._bytes_max):
            self.refused_count += 1
            raise e.exhausted(e.TOO_MANY_REQUESTS)
        self.calls += 1
        self._bytes += size
        self._of[owner] = (calls + 1, held + size)
        try:
            yield
        finally:
            self.calls -= 1
            self._bytes -= size
            calls, held = self._of[owner]
            if calls == 1:
                del self._of[owner]
            else:
                self._of[owner] = (calls - 1, held - size)
