"""A stateful query by `transformWithState`: a value, a list and a map of each key; and the same as a plain fold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

SCHEMA = "k string, n long, top array<long>, kinds string"
KEPT, KINDS = 3, 4
Told = tuple[int, list[int], str]
"""Of a key: its rows, its largest values, and how many rows there were of each kind."""


def sums_of(rows: DataFrame) -> DataFrame:
    """Return what a stream of (k string, v long) comes to: of each key that a micro-batch has, what it has by then."""

    class Sums(StatefulProcessor):  # Within a function: so it goes to Spark's workers as it is, not by its name.
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.count = handle.getValueState("count", "n long")
            self.top = handle.getListState("top", "v long")
            self.kinds = handle.getMapState("kinds", "kind long", "n long")

        def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
            values = [row.v for row in rows]
            count = len(values) + (self.count.get()[0] if self.count.exists() else 0)
            self.count.update((count,))
            top = sorted([row[0] for row in self.top.get()] + values)[-KEPT:]
            self.top.put([(value,) for value in top])
            for value in values:
                kind = (value % KINDS,)
                held = self.kinds.getValue(kind)[0] if self.kinds.containsKey(kind) else 0
                self.kinds.updateValue(kind, (held + 1,))
            kinds = _shown((kind[0], n[0]) for kind, n in self.kinds.iterator())
            yield Row(k=key[0], n=count, top=top, kinds=kinds)

        def close(self) -> None: ...

    return rows.groupBy("k").transformWithState(Sums(), SCHEMA, "Update", "None")


def _shown(kinds: Iterable[tuple[int, int]]) -> str:
    return ",".join(f"{kind}:{n}" for kind, n in sorted(kinds))


def folded(rows: Iterable[tuple[str, int]]) -> dict[str, Told]:
    """Return the same of all rows, in plain Python."""
    values: dict[str, list[int]] = {}
    for key, value in rows:
        values.setdefault(key, []).append(value)
    return {
        key: (len(found), sorted(found)[-KEPT:], _shown((k, sum(v % KINDS == k for v in found)) for k in
              sorted({v % KINDS for v in found})))
        for key, found in values.items()
    }  # fmt: skip
