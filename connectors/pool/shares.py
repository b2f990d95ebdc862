"""Shares of Spark's cores between runs: each run has as much as any other, whosever it is.

The broker weighs tenants: of the slots for runs a tenant of weight 3 has three times as many as one of weight 1. Spark
must not weigh them once more, by tenant or otherwise, or the two would multiply or cancel. So each slot of the broker's
has a pool of Spark's fair scheduler, all of one weight, and a run works in the pool of its slot.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NAME = "statement-{}"
_DEFAULT = "default"


class StatementSlots:
    """Names of Spark's pools, each lent to one run at a time. May be used on any thread.

    There are never more names than runs at once: Spark keeps every pool that it has heard of.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: set[int] = set()

    @contextmanager
    def taken(self) -> Iterator[str]:
        """Lend the name of the pool with the lowest number that is free."""
        with self._lock:
            number = next(number for number in range(1, len(self._taken) + 2) if number not in self._taken)
            self._taken.add(number)
        try:
            yield _NAME.format(number)
        finally:
            with self._lock:
                self._taken.discard(number)


def write_allocations(folder: Path, *, statements: int, functions: int) -> str:
    """Write a file of pools for Spark's fair scheduler; return its URI for `spark.scheduler.allocation.file`.

    Jobs of functions come through Spark Connect, which names no pool: they share the default one, stage by stage.

    Args:
        folder: Where; the file has to be there until the session is.
        statements: How many run at once at most.
        functions: The same; their pool weighs as much as they do together.

    """
    pools = [(_NAME.format(number), "FIFO", 1) for number in range(1, statements + 1)]
    pools.append((_DEFAULT, "FAIR", max(1, functions)))
    lines = [
        f'  <pool name="{name}"><schedulingMode>{mode}</schedulingMode><weight>{weight}</weight>'
        "<minShare>0</minShare></pool>"
        for name, mode, weight in pools
    ]
    path = folder.resolve() / "pools.xml"
    path.write_text("\n".join(["<allocations>", *lines, "</allocations>", ""]), encoding="utf-8")
    return path.as_uri()
