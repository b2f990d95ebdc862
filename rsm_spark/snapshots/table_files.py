"""Parquet files of a Delta table, written in memory that rows of any size do not exceed, and added in one commit.

`deltalake` gathers 8,192 rows at a time, some times over: half a gigabyte at rows of 8 KB. Here a row group ends by its
bytes too, and so does a file. Names of files are in the order of their rows.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from rsm_spark.snapshots.columns import ROW_GROUP_BYTES, ROW_GROUP_ROWS
from rsm_spark.snapshots.delta_sync import local_folder
from rsm_spark.snapshots.lake_files import copy_in

FILE_BYTES: Final = 96 * 1024 * 1024
"""A file ends when it has so many bytes: who reads tables in parallel has files to share."""
_TEXT_CHARS_MAX: Final = 32
"""Of a column with longer texts nothing is told of the least and the greatest."""


class TableFile(msgspec.Struct, frozen=True):
    """A file that belongs to no version of its table yet.

    Attributes:
        name: Relative to the table.
        bytes: Its size.
        stats: What Delta's log says of its rows, as JSON.

    """

    name: str
    bytes: int
    stats: str


def write_table_files(
    place: str,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    storage_options: Mapping[str, str] | None = None,
) -> list[TableFile]:
    """Write rows to new files of a table; none if there are no rows. What was written is removed if it fails.

    Raises:
        OSError, DeltaError, RsmError: They cannot be written.
        Exception: Whatever `batches` raises.

    """
    folder = local_folder(place)
    stamp = os.urandom(16).hex()
    files: list[TableFile] = []
    groups = _groups(batches)
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            while (group := next(groups, None)) is not None:
                name = _name(len(files), stamp)
                files.append(_write_file(folder / name, schema, group, groups))
        else:
            # By way of a disk: a store's stream may complete a file whose rows broke off.
            with tempfile.TemporaryDirectory(prefix="rsm-lake-") as drafts:
                while (group := next(groups, None)) is not None:
                    draft = Path(drafts) / _name(len(files), stamp)
                    files.append(_write_file(draft, schema, group, groups))
                    copy_in(place, draft, draft.name, storage_options)
                    draft.unlink()
    except BaseException:
        for path in () if folder is None else folder.glob(f"part-*-{stamp}.zstd.parquet"):
            path.unlink(missing_ok=True)
        raise
    return files


def _name(number: int, stamp: str) -> str:
    return f"part-{number:05d}-{stamp}.zstd.parquet"


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Gather batches to row groups."""
    group: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        group.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= ROW_GROUP_ROWS or size >= ROW_GROUP_BYTES:
            yield group
            group, rows, size = [], 0, 0
    if group:
        yield group


def _write_file(
    path: Path, schema: pa.Schema, first: list[pa.RecordBatch], rest: Iterator[list[pa.RecordBatch]]
) -> TableFile:
    stats = _FileStats(schema)
    with path.open("xb") as sink, pq.ParquetWriter(sink, schema, compression="zstd", compression_level=1) as writer:
        group: list[pa.RecordBatch] | None = first
        while group is not None:
            table = pa.Table.from_batches(group, schema=schema)
            stats.add(table)
            writer.write_table(table, row_group_size=table.num_rows)
            group = None
            if sink.tell() < FILE_BYTES:
                group = next(rest, None)
    return TableFile(path.name, path.stat().st_size, stats.text())


class _FileStats:
    """Sums of the rows of a file: how many, and of each column its nulls, and the least and the greatest value.

    Of columns for which Delta's text of a value needs rules of its own nothing but the nulls is told.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._rows = 0
        self._nulls = dict.fromkeys(schema.names, 0)
        self._least: dict[str, Any] = {}
        self._greatest: dict[str, Any] = {}
        self._told = {field.name for field in schema if _is_told(field.type)}

    def add(self, table: pa.Table) -> None:
        self._rows += table.num_rows
        for name in table.column_names:
            column = table[name]
            self._nulls[name] += column.null_count
            if name not in self._told:
                continue
            found = pc.min_max(column)
            least, greatest = found["min"].as_py(), found["max"].as_py()
            if least is None:
                continue
            if not (_fits(least) and _fits(greatest)):
                self._told.discard(name)
                continue
            self._least[name] = min(least, self._least.get(name, least))
            self._greatest[name] = max(greatest, self._greatest.get(name, greatest))

    def text(self) -> str:
        """Return them as JSON."""
        return json.dumps(
            {
                "numRecords": self._rows,
                "minValues": {name: value for name, value in self._least.items() if name in self._told},
                "maxValues": {name: value for name, value in self._greatest.items() if name in self._told},
                "nullCount": self._nulls,
            }
        )


def _is_told(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind))


def _fits(value: Any) -> bool:
    return not isinstance(value, str) or len(value) <= _TEXT_CHARS_MAX


def opened_table(place: str, storage_options: Mapping[str, str] | None = None) -> DeltaTable | None:
    """Return the newest version of a table; None = there is none."""
    try:
        return DeltaTable(place, storage_options=dict(storage_options or {}) or None)
    except TableNotFoundError:
        return None


def add_table_files(
    place: str,
    handle: DeltaTable | None,
    files: Sequence[TableFile],
    schema: pa.Schema,
    *,
    mode: str,
    properties: CommitProperties,
    name: str | None = None,
    description: str | None = None,
    configuration: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> None:
    """Add files that are there to a table, in one commit.

    Args:
        place: Path or URI of the table.
        handle: The table at the version that the commit is made on; None = there is none, it is made.
        files: Of `write_table_files`.
        schema: Of their rows.
        mode: "overwrite": they are all that it has from now on, "append": they come to its others.
        properties: Of the commit.
        name: Of a table that is made.
        description: The same.
        configuration: The same.
        storage_options: For `deltalake`.

    Raises:
        DeltaError, OSError: It cannot be written, or somebody else committed at the same time.

    """
    now_ms = time.time_ns() // 1_000_000
    added: list[AddAction | RemoveAction] = [
        AddAction(file.name, file.bytes, {}, now_ms, data_change=True, stats=file.stats) for file in files
    ]
    described = Schema.from_arrow(schema)
    if handle is None:
        create_table_with_add_actions(
            place,
            described,
            added,  # type: ignore[arg-type]  # it takes what it has
            mode="error",
            name=name,
            description=description,
            configuration=dict(configuration or {}),
            storage_options=dict(storage_options or {}) or None,
            commit_properties=properties,
        )
        return
    handle.create_write_transaction(added, mode, described, [], commit_properties=properties)
