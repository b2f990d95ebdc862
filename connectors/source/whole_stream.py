"""`spark.readStream.format("ledger")` in Spark 4.0 and 4.1: a micro-batch takes all that there is.

These ask a Python source for the end of a micro-batch without telling where it begins, and know no limits. So a query
that is started again plans its first micro-batch blindly, up to the end of the log. What needs to know better is
refused: limits, holding a log, beginning with a snapshot, several logs and partitioned ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from connectors.errors import OptionError
from connectors.plain_errors import tells_plainly
from connectors.source.access import DriverAccess
from connectors.source.admission import EVERYTHING
from connectors.source.bounds import BoundKind
from connectors.source.inputs import read_input
from connectors.source.offsets import decode_log_offsets
from connectors.source.options import SourceOptions
from connectors.source.query_source import QuerySource, source_of
from connectors.source.traced_batches import read_traced, trace_of, traced_plan


@tells_plainly("initialOffset", "latestOffset", "partitions", "read")
class WholeStreamReader(DataSourceStreamReader):
    """Plans micro-batches on the driver; tasks read them from the bookies. As `LedgerStreamReader`, without limits.

    Args:
        parse: Returns the options of the query, or raises what is wrong with them. It is called when Spark first asks
            for an offset: what is raised while it makes a reader, these Sparks lose.

    """

    def __init__(self, parse: Callable[[], SourceOptions]) -> None:
        self._parse = parse
        self._access: DriverAccess | None = None
        self._source: QuerySource | None = None
        # Where the next micro-batch begins; None where Spark has not told yet, after another start.
        self._next: dict[str, Any] | None = None

    def __reduce__(self) -> tuple[type[WholeStreamReader], tuple[Callable[[], SourceOptions]]]:
        """Leave connections and the driver's state behind."""
        return type(self), (self._parse,)

    @cached_property
    def _options(self) -> SourceOptions:
        options = self._parse()
        for name in _newer(options):
            raise OptionError(
                f"option {name} needs Spark 4.2: older ones do not tell a source where a micro-batch begins, and know "
                "no limits"
            )
        return options

    def _opened(self) -> QuerySource:
        if self._source is None:
            self._access = DriverAccess(self._options)
            self._source = source_of(self._options, self._access)
        return self._source

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where a new query starts."""
        self._next = self._checked(self._opened().bound(is_start=True))
        return self._next

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802 - as Spark 4.0 calls it
        """Return the end of all that there is."""
        source = self._opened()
        if self._next is None:
            return self._checked(source.end())
        return source.following(self._next, EVERYTHING, None)

    def _checked(self, offset: dict[str, Any]) -> dict[str, Any]:
        """Refuse a log that is partitioned: its keys keep their order only where starts are known."""
        log = self._options.log
        if log and {*decode_log_offsets(offset)} != {log}:
            raise OptionError(f"log {log} is partitioned: streams of such logs need Spark 4.2, batches do not")
        return offset

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return what the tasks of a micro-batch read."""
        planned = traced_plan(trace_of(self._options), lambda: self._opened().partitions(start, end))
        self._next = end
        return planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read an input partition (in a task)."""
        return read_traced(partition, read_input)

    def stop(self) -> None:
        """End all connections of the driver."""
        access, self._access, self._source = self._access, None, None
        if access is not None:
            access.close()


def _newer(options: SourceOptions) -> list[str]:
    """Return which options are given that need more than these Sparks tell."""
    given = {
        "maxOffsetsPerTrigger": options.offsets_per_trigger_max is not None,
        "maxBytesPerTrigger": options.bytes_per_trigger_max is not None,
        "minOffsetsPerTrigger": options.offsets_per_trigger_min is not None,
        "consumer": bool(options.consumer),
        "logPattern": bool(options.log_pattern),
        "startingOffsets=snapshot": any(one.kind == BoundKind.SNAPSHOT for one in options.starting.values()),
    }
    return [name for name, is_given in given.items() if is_given]
