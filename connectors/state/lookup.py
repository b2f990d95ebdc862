"""Lookup join: rows of a frame, a batch or a stream, beside what a replicated map holds under their keys now.

    with_names = orders.transform(map_lookup("customers", key="customer", value="name"))

Nothing of the map is read but the keys that are asked for: each Python worker has a client, and asks for the keys of
one Arrow batch at once, each key once. A row has what the map held when its batch was computed; a batch that is
computed again may see later values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Unpack

import pyarrow as pa
from pyspark.sql.types import BinaryType, LongType, StringType, StructType

from connectors.errors import OptionError
from connectors.plain_errors import told_plainly
from connectors.state.lookup_links import LookupLink, LookupOptions, LookupSource, lookup_source
from rsm_spark.map.limits import key_fault

if TYPE_CHECKING:
    # A client of Spark Connect has another class of this name.
    from pyspark.sql import DataFrame

KEYS_MAX = 1_000
"""Keys of one call."""


def map_lookup(
    log: str,
    *,
    key: str = "key",
    value: str = "value",
    revision: str = "",
    **options: Unpack[LookupOptions],
) -> Callable[[DataFrame], DataFrame]:
    """Return a function that gives a frame a column with the values of a map; the frame may be a stream.

    Executors reach the map's replicas, and find tokens and certificates by the variables of clients.

    Args:
        log: The map's.
        key: Column of the frame that has the keys, binary or string.
        value: Name of the column that is added, binary: null where the map has no such key.
        revision: Name of another column, with the revision that wrote the key last; "" = none is added.
        options: See `LookupOptions`.

    Raises:
        OptionError: An argument cannot be; or, when the function is called, the frame has no such column of keys, or
            has a column of the name that is to be added.

    """
    if not log or not value or value == revision:
        raise OptionError(f"log is {log!r}, value {value!r}, revision {revision!r}: all are names, the last two differ")
    source = lookup_source("map", log, options)

    def joined(frame: DataFrame) -> DataFrame:
        schema = _joined_schema(frame.schema, key, value, revision)

        def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield _with_values(batch, source, key, value, revision)

        return frame.mapInArrow(told_plainly(look), schema)

    return joined


def _joined_schema(schema: StructType, key: str, value: str, revision: str) -> StructType:
    names = schema.names
    if names.count(key) != 1 or not isinstance(schema[key].dataType, BinaryType | StringType):
        raise OptionError(f"lookup: the keys are in one column {key!r}, binary or string; the frame has {schema}")
    added = [value, *([revision] if revision else [])]
    twice = [name for name in added if name in names]
    if twice:
        raise OptionError(f"lookup: the frame has a column {twice[0]} already: name another one to be added")
    wider = StructType([*schema.fields]).add(value, BinaryType())
    return wider.add(revision, LongType()) if revision else wider


def _with_values(batch: pa.RecordBatch, source: LookupSource, key: str, value: str, revision: str) -> pa.RecordBatch:
    keys = [one.encode() if isinstance(one, str) else one for one in batch.column(key).to_pylist()]
    found = _values(LookupLink.of_process(source), {one for one in keys if one is not None})
    rows = [(None, None) if one is None else found.get(one, (None, None)) for one in keys]
    batch = batch.append_column(pa.field(value, pa.binary()), pa.array([row[0] for row in rows], pa.binary()))
    if not revision:
        return batch
    return batch.append_column(pa.field(revision, pa.int64()), pa.array([row[1] for row in rows], pa.int64()))


def _values(link: LookupLink, keys: set[bytes]) -> dict[bytes, tuple[bytes, int]]:
    """Return values and revisions of the keys that a map has."""
    asked = sorted(one for one in keys if not key_fault(one))  # A key that no map can have is not in it.
    found: dict[bytes, tuple[bytes, int]] = {}
    for begin in range(0, len(asked), KEYS_MAX):
        some: Sequence[bytes] = asked[begin : begin + KEYS_MAX]
        for one, held in zip(some, link.run(link.client.get_many(some)), strict=True):
            if held is not None:
                found[one] = (held.value, held.revision)
    return found
