"""Timers of a typed service: methods that the leader calls for each row whose time has come.

    class Hold(msgspec.Struct):
        seat: str
        since_ms: int
        lasts_ms: int = 60_000

    holds = table(Hold)

    @due(holds, since="since_ms", lasts="lasts_ms")
    def release(self, hold: Hold) -> None:
        self.holds.delete(hold.seat)

A timer is like a command without a client: what it changes is logged in one entry, or nothing of it. It has to delete
its row, or give it a later time. One that raises, or leaves its row as due as it was, is told in the leader's log and
tried again a minute later; other rows do not wait for it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from rsm_spark.core.machine import FieldType
from rsm_spark.core.typed_tables import StateTable
from rsm_spark.errors import InvalidDescriptionError

F = TypeVar("F", bound=Callable[..., None])

RETRY_MS = 60_000
"""Logged time after which a timer that failed is tried again."""


class Timer:
    """Declaration of a timer.

    Args:
        table: As the class declares it.
        function: The method.
        at: Column with the logged time at which a row is due, ms since 1970; "" = `since` and `lasts` say it.
        since: Column with the logged time from which its length counts.
        lasts: Column with its length, ms.

    Attributes:
        table: The same.
        function: The same.

    """

    def __init__(self, table: StateTable[Any], function: Callable[..., None], at: str, since: str, lasts: str) -> None:
        self.table = table
        self.function = function
        said = f"{function.__qualname__}: due(…)"
        if (at == "") == (since == "" or lasts == "") or (at and (since or lasts)):
            raise InvalidDescriptionError(f"{said} takes either at=COLUMN, or since=COLUMN and lasts=COLUMN")
        names = [one.name for one in table.columns]
        self._columns: list[int] = []
        for name in (at,) if at else (since, lasts):
            if name not in names or table.columns[names.index(name)].type is not FieldType.INT:
                known = ", ".join(one.name for one in table.columns if one.type is FieldType.INT)
                raise InvalidDescriptionError(
                    f"{said}: {name!r} is no column of whole numbers of its table, which has {known or 'none'}"
                )
            self._columns.append(names.index(name))

    def due_ms(self, fields: tuple[Any, ...], promoted_ms: int) -> int | None:
        """Return the logged time at which a row is due; None = never: one of its columns is None.

        Args:
            fields: Of the row, its key first.
            promoted_ms: Logged time at which this leader began: lengths of before count from there.

        """
        times = [fields[column] for column in self._columns]
        if None in times:
            return None
        return int(times[0]) if len(times) == 1 else max(int(times[0]), promoted_ms) + int(times[1])


def due(table: Any, *, at: str = "", since: str = "", lasts: str = "") -> Callable[[F], F]:
    """Declare a method a timer: the leader calls it with each row of a table whose time has come.

    Args:
        table: Of the class: ``holds = table(Hold)``.
        at: Column with the logged time at which a row is due, ms since 1970, as `self.now_ms` is.
        since: Instead of it: column with the logged time from which a length counts. A new leader gives each row its
            full length again, as leases get it.
        lasts: Column with that length, ms.

    Raises:
        InvalidDescriptionError: The table has no such columns of whole numbers.

    """

    def declare(function: F) -> F:
        function.__dict__["rsm_due"] = Timer(table, function, at, since, lasts)
        return function

    return declare


class TimedRows:
    """Rows of one table in the order in which a timer is due for them; kept where the machine leads.

    Args:
        timer: Whose they are.
        table: As the machine holds it.

    Attributes:
        timer: The same.
        table: The same.

    """

    def __init__(self, timer: Timer, table: StateTable[Any]) -> None:
        self.timer = timer
        self.table = table
        self._promoted_ms = 0
        # Time, number of the note, key: keys need no order.
        self._queue: list[tuple[int, int, tuple[Any, ...]]] = []
        self._notes = 0
        # By key, its time in the queue that counts: others there are stale.
        self._times: dict[tuple[Any, ...], int] | None = None

    def forget(self) -> None:
        """Begin anew at the next question: the state is another one."""
        self._times = None
        self._queue = []

    def note(self, key: tuple[Any, ...]) -> None:
        """Note that a row has changed."""
        if self._times is None:
            return
        fields = self.table.fields_of(key)
        due_ms = None if fields is None else self.timer.due_ms(fields, self._promoted_ms)
        self._set(key, due_ms)

    def postpone(self, key: tuple[Any, ...], until_ms: int) -> None:
        """Have a row that could not be worked off wait, until it changes or the time has come."""
        self._set(key, until_ms)

    def first(self, promoted_ms: int) -> tuple[int, tuple[Any, ...]] | None:
        """Return time and key of the row that is due first, or None."""
        if self._times is None or promoted_ms != self._promoted_ms:
            self._build(promoted_ms)
        queue, times = self._queue, self._times
        assert times is not None, "just built"
        while queue and times.get(queue[0][2]) != queue[0][0]:
            heapq.heappop(queue)
        return (queue[0][0], queue[0][2]) if queue else None

    def _set(self, key: tuple[Any, ...], due_ms: int | None) -> None:
        assert self._times is not None, "it was asked for"
        if due_ms is None:
            self._times.pop(key, None)
        elif self._times.get(key) != due_ms:
            self._times[key] = due_ms
            self._notes += 1
            heapq.heappush(self._queue, (due_ms, self._notes, key))

    def _build(self, promoted_ms: int) -> None:
        self._promoted_ms = promoted_ms
        times = {key: self.timer.due_ms(fields, promoted_ms) for key, fields in self._rows()}
        self._times = {key: due_ms for key, due_ms in times.items() if due_ms is not None}
        self._queue = [(due_ms, number, key) for number, (key, due_ms) in enumerate(self._times.items())]
        self._notes = len(self._queue)
        heapq.heapify(self._queue)

    def _rows(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        return self.table.all_fields()
