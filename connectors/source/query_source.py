"""Source of a query, logs or plain ledgers: bounds become offsets, offsets become input partitions. Driver only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from pyspark.sql.datasource import InputPartition

from connectors.source.ledgers_source import LedgersSource
from connectors.source.logs_source import LogsSource
from connectors.source.options import SourceOptions
from connectors.source.plan import MicroBatchLimits
from connectors.source.progress import SourceLag
from connectors.source.task_metadata import SourceAccess

Offset = dict[str, Any]


class QuerySource(Protocol):
    """QuerySource of a query. All calls may block and use the network."""

    def bound(self, *, is_start: bool) -> Offset:
        """Return the offset that the starting or ending option means now."""
        ...

    def end(self) -> Offset:
        """Return the offset after everything that may be read now."""
        ...

    def following(self, start: Offset, limits: MicroBatchLimits, target: Offset | None) -> Offset:
        """Return the end of the next micro-batch; `start`, unchanged, if there is nothing to read.

        Args:
            start: Where the query stands.
            limits: At most so many records (of logs), entries (of ledgers) or bytes; rounded up to whole entries.
            target: Not beyond this offset; None = up to what may be read now.

        Raises:
            StartGoneError: What comes next is gone, and that is an error (`failOnDataLoss`).

        """
        ...

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the input partitions of [start, end), in order.

        Raises:
            StartGoneError: Some of it is gone, and that is an error (`failOnDataLoss`).

        """
        ...

    def backlog(self, offset: Offset) -> SourceLag:
        """Return what waits behind an offset."""
        ...

    def losses(self) -> list[dict[str, Any]]:
        """Return the ranges that were skipped because they are gone: ``{"log": …, "from": …, "to": …, "count": …}``.

        Of a plain ledger ``"ledger"`` takes the place of ``"log"``; what is not known is null.
        """
        ...


def source_of(options: SourceOptions, access: SourceAccess) -> QuerySource:
    """Return what the options name."""
    return LogsSource(options, access) if options.is_logs else LedgersSource(options, access)
