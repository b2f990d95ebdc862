"""Partitioned logs of a query: which partitions they have, and how far each may be read for the order of keys.

A micro-batch holds records of a partition from behind a growth only if the query stood, before it, behind all that the
keys of that partition may have had in other partitions. So each key's records of one micro-batch are of one partition,
in the order of their revisions, and a later micro-batch has later ones.

The layouts are read after the ends of the partitions: what lies before such an end is of a generation that they name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from rsm_spark.core.partition_layout import KeyOrder, PartitionLayout, partition_log, split_partition_log


class PartitionPlace(NamedTuple):
    """Place of a partition.

    Attributes:
        log: Name of the partitioned log.
        partition: Which one of it.

    """

    log: str
    partition: int


class LayoutAccess(Protocol):
    """Access to layouts; `access.DriverAccess` is the real one."""

    def layout(self, log: str) -> PartitionLayout | None:
        """Read the layout of a partitioned log, no older than this call; None = there is none of this name."""
        ...

    def partitioned_logs(self) -> list[str]:
        """Return the names of all partitioned logs, ascending; no older than this call."""
        ...


class LayoutLook:
    """Looks at the layouts of the partitioned logs of a query again and again.

    Args:
        access: Where they are read.

    """

    def __init__(self, access: LayoutAccess) -> None:
        self._access = access
        # A log that is deleted keeps its last layout: its partitions are gone, and are told of one by one.
        self._layouts: dict[str, PartitionLayout] = {}

    @property
    def logs(self) -> list[str]:
        """Names of the partitioned logs that were found, ascending."""
        return sorted(self._layouts)

    def look(self, logs: Iterable[str]) -> bool:
        """Read the layouts of these logs; return whether partitions or generations have changed."""
        has_changed = False
        for log in logs:
            layout, known = self._access.layout(log), self._layouts.get(log)
            if layout is None:
                continue
            if known is None or (known.log_ids, known.generations) != (layout.log_ids, layout.generations):
                has_changed = True
            self._layouts[log] = layout
        return has_changed

    def look_again(self) -> bool:
        """Read what was found before; return whether it has changed."""
        return self.look(self.logs)

    def partitions(self, log: str) -> list[str]:
        """Return the names of a log's partitions, in order; [] = it is not partitioned."""
        layout = self._layouts.get(log)
        return [] if layout is None else [partition_log(log, number) for number in range(layout.partition_count)]

    def place_of(self, log: str) -> PartitionPlace | None:
        """Return of which log that was found a plain log is a partition; None = of none."""
        split = split_partition_log(log)
        if split is None or split[0] not in self._layouts:
            return None
        place = PartitionPlace(*split)
        return place if place.partition < self._layouts[place.log].partition_count else None

    def limits(self, read: Mapping[str, int]) -> dict[str, int]:
        """Return how far partitions may be read now.

        Args:
            read: By plain log of the query, the revision up to which it was read.

        Returns:
            By name of the partitions that are limited, the last revision that may be read.

        """
        found: dict[str, int] = {}
        for log, by_partition in self._by_log(read).items():
            order = KeyOrder(self._layouts[log])
            if order.is_settled(by_partition):
                continue
            for partition in sorted(by_partition):
                limit = order.limit(partition, by_partition)
                if limit is not None:
                    found[partition_log(log, partition)] = limit
        return found

    def closed_ends(self, starts: Mapping[str, int], ends: Mapping[str, int]) -> dict[str, int]:
        """Return ends at which no key has a record without those that it had before.

        The ends of several partitions were found one after the other: meanwhile a log may have grown.

        Args:
            starts: By plain log of the query, the revision before the first that is read.
            ends: The same: the last one that could be read.

        Returns:
            By name of the partitions that have to end earlier, the last revision that may be read.

        """
        cut: dict[str, int] = {}
        for log, found in self._by_log(ends).items():
            order, by_partition = KeyOrder(self._layouts[log]), dict(found)
            has_changed = not order.is_settled(by_partition)
            while has_changed:
                has_changed = False
                for partition in sorted(by_partition):
                    name = partition_log(log, partition)
                    limit = order.limit(partition, {**by_partition, partition: starts.get(name, 0)})
                    if limit is not None and limit < by_partition[partition]:
                        by_partition[partition] = cut[name] = limit
                        has_changed = True
        return cut

    def _by_log(self, positions: Mapping[str, int]) -> dict[str, dict[int, int]]:
        found: dict[str, dict[int, int]] = {}
        for name in sorted(positions):
            place = self.place_of(name)
            if place is not None:
                found.setdefault(place.log, {})[place.partition] = positions[name]
        return found
