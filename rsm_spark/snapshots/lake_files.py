"""The files of a snapshot in the lake, for who reads or writes them on many machines at once.

A snapshot is one version of a Delta table: so many Parquet files, each with some of the rows. Whoever holds a
`LakeFile` reads its rows without looking at the table; whoever has written files adds them all in one commit.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from rsm_spark.errors import CorruptSnapshotError, SnapshotError
from rsm_spark.object_stores.complaints import complaint_of, is_refusal
from rsm_spark.object_stores.storage_options import is_s3, shown_uri
from rsm_spark.snapshots.columns import ROW_GROUP_ROWS, ROW_SCHEMA
from rsm_spark.snapshots.delta_sync import contained, local_folder

_READ_ROWS = 16_384
_CHUNK_BYTES = 1 << 20


class LakeFile(msgspec.Struct, frozen=True, array_like=True):
    """One file of a snapshot.

    Attributes:
        name: Relative to the table, as the table's log writes it (percent-encoded).
        bytes: Its size.
        rows: Rows in it; -1 = the table does not say.

    """

    name: str
    bytes: int
    rows: int


class RowGroup(msgspec.Struct, frozen=True):
    """A part of a file that can be read alone.

    Attributes:
        rows: Rows in it.
        bytes: Of its columns, not compressed.

    """

    rows: int
    bytes: int


def files_of_version(place: str, version: int, storage_options: Mapping[str, str] | None = None) -> list[LakeFile]:
    """Return the files of a table version, by name.

    Raises:
        SnapshotError: The table cannot be read, or marks rows of its files as deleted (deletion vectors): its rows are
            then not those of its files.

    """
    try:
        table = DeltaTable(place, version=version, storage_options=dict(storage_options or {}) or None)
        if any(batch.num_rows for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors())):
            raise SnapshotError(
                f"{place} version {version}: it has deletion vectors: rewrite it (REORG … APPLY (PURGE))"
            )
        added = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    except (DeltaError, OSError, pa.ArrowException) as error:
        said = lake_complaint(place, error, storage_options)
        raise SnapshotError(f"{shown_uri(place)} version {version}: its files cannot be listed: {said}") from None
    files = [
        LakeFile(one["path"], one["size_bytes"], -1 if one.get("num_records") is None else one["num_records"])
        for one in added
    ]
    return sorted(files, key=lambda file: file.name)


def groups_of_file(place: str, file: LakeFile, storage_options: Mapping[str, str] | None = None) -> list[RowGroup]:
    """Return the row groups of a file, in order; only its footer is read.

    Raises:
        CorruptSnapshotError: The file is gone, or is none.
        SnapshotError: The store cannot be asked.

    """
    try:
        with _opened(place, file.name, storage_options) as source:
            footer = pq.read_metadata(source)
            groups = [footer.row_group(place) for place in range(footer.num_row_groups)]
            return [RowGroup(group.num_rows, group.total_byte_size) for group in groups]
    except (DeltaError, OSError, pa.ArrowException, ValueError) as error:
        raise _unreadable(place, file, error, storage_options) from None


def read_lake_file(
    place: str,
    file: LakeFile,
    columns: Sequence[str],
    storage_options: Mapping[str, str] | None = None,
    *,
    groups: Sequence[int] | None = None,
    later: Collection[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, a few thousand at a time.

    A file of S3 that is read whole is copied to the machine first, into a file without a name.

    Args:
        place: Path or URI of the table.
        file: Of `files_of_version`.
        columns: To read, in this order.
        storage_options: For `deltalake`.
        groups: Row groups to read, as they are numbered in the file; None = all.
        later: Those of the columns that a file of before may lack; they come as nulls (type null) then, as Delta's
            rules have it.

    Raises:
        CorruptSnapshotError: The file is gone, is none, or lacks one of the other columns.
        SnapshotError: The store cannot be asked.

    """
    try:
        is_fetched = groups is None and is_s3(place)
        with (_fetched if is_fetched else _opened)(place, file.name, storage_options) as source:
            parquet = pq.ParquetFile(source)
            there = set(parquet.schema_arrow.names)
            lacking = [name for name in columns if name not in there and name not in later]
            if lacking:
                raise CorruptSnapshotError(f"{shown_uri(place)}: file {file.name} has no column {', '.join(lacking)}")
            wanted = range(parquet.num_row_groups) if groups is None else groups
            # One after the other: else row groups are joined until they have that many rows, whatever their size.
            for group in wanted:
                for batch in parquet.iter_batches(_READ_ROWS, row_groups=[group], columns=list(columns)):
                    yield _in_order(batch, columns)
    except (DeltaError, OSError, pa.ArrowException, ValueError) as error:
        raise _unreadable(place, file, error, storage_options) from None


def _in_order(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """Return a batch with these columns, those that it lacks as nulls."""
    for name in set(columns).difference(batch.schema.names):
        batch = batch.append_column(name, pa.nulls(batch.num_rows))
    return batch.select(list(columns))


def _opened(place: str, name: str, storage_options: Mapping[str, str] | None) -> Any:
    path = contained(name)
    folder = local_folder(place)
    if folder is None:
        return _file_system(place, storage_options).open_input_file(path)
    file = (folder / path).resolve()
    if not file.is_relative_to(folder.resolve()):
        raise CorruptSnapshotError(f"{place}: file {name} is a link to {file}, out of the table")
    return pa.memory_map(str(file))


@contextmanager
def _fetched(place: str, name: str, storage_options: Mapping[str, str] | None) -> Iterator[Any]:
    """Open a copy of a file in S3: by deltalake's files a store that refuses is asked again for minutes."""
    from rsm_spark.object_stores.s3 import S3Store  # noqa: PLC0415 - boto3 only where it is used

    with tempfile.TemporaryFile() as copy:
        with S3Store(place, storage_options).open(contained(name)) as source:
            while piece := source.read(_CHUNK_BYTES):
                copy.write(piece)
        copy.seek(0)
        yield copy


def _file_system(place: str, storage_options: Mapping[str, str] | None) -> pafs.PyFileSystem:
    return pafs.PyFileSystem(DeltaStorageHandler(place, dict(storage_options or {}) or None))


def write_lake_file(
    place: str, batches: Iterable[pa.RecordBatch], storage_options: Mapping[str, str] | None = None
) -> LakeFile | None:
    """Write rows in `columns.ROW_SCHEMA` to a new file of a table; it belongs to no version until it is added.

    Returns:
        The file; None if there were no rows.

    Raises:
        SnapshotError: It cannot be written.

    """
    rows = iter(batches)
    first = next(rows, None)
    if first is None:
        return None
    name = f"part-{os.urandom(16).hex()}.zstd.parquet"
    folder = local_folder(place)
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            count, size = _write_rows(folder / name, _chained(first, rows))
        else:
            # By way of a disk: a store's stream may complete a file whose rows broke off.
            with tempfile.TemporaryDirectory(prefix="rsm-lake-") as drafts:
                draft = Path(drafts) / name
                count, size = _write_rows(draft, _chained(first, rows))
                copy_in(place, draft, name, storage_options)
    except (DeltaError, OSError, pa.ArrowException) as error:
        said = lake_complaint(place, error, storage_options)
        raise SnapshotError(f"{shown_uri(place)}: file {name} cannot be written: {said}") from None
    return LakeFile(quote(name), size, count)


def _write_rows(path: Path, batches: Iterator[pa.RecordBatch]) -> tuple[int, int]:
    """Write a Parquet file; return how many rows and bytes it has."""
    count = 0
    with path.open("wb") as sink, pq.ParquetWriter(sink, ROW_SCHEMA, compression="zstd", compression_level=1) as writer:
        for batch in batches:
            writer.write_batch(batch.cast(ROW_SCHEMA), row_group_size=ROW_GROUP_ROWS)
            count += batch.num_rows
    return count, path.stat().st_size


def copy_in(place: str, source: Path, name: str, storage_options: Mapping[str, str] | None) -> None:
    """Copy a file of this machine to an object store, as a file of a table there."""
    if is_s3(place):
        from rsm_spark.object_stores.s3 import S3Store  # noqa: PLC0415 - boto3 only where it is used

        S3Store(place, storage_options).copy_in(source, name)
        return
    written: Any = DeltaStorageHandler(place, dict(storage_options or {}) or None)._handler.open_output_stream(name)
    with source.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            written.write(chunk)
    written.close()


def remove_lake_files(place: str, storage_options: Mapping[str, str] | None = None) -> None:
    """Remove all that lies below a table's place in an object store; its commits go last: it can be done again.

    Raises:
        DeltaError, OSError: It cannot be removed.

    """
    files = _file_system(place, storage_options)
    found = files.get_file_info(pafs.FileSelector("", recursive=True))
    paths = [one.path for one in found if one.type == pafs.FileType.File]
    for path in sorted(paths, key=lambda path: (path.startswith("_delta_log/"), path)):
        files.delete_file(path)


def _unreadable(
    place: str, file: LakeFile, error: BaseException, storage_options: Mapping[str, str] | None
) -> SnapshotError:
    told = f"{shown_uri(place)}: file {file.name} cannot be read: {lake_complaint(place, error, storage_options)}"
    is_refused = local_folder(place) is None and is_refusal(error)
    return SnapshotError(told) if is_refused else CorruptSnapshotError(told)


def lake_complaint(place: str, error: BaseException, storage_options: Mapping[str, str] | None) -> str:
    """Return what is said of an error: of a store in one line without secrets, of a disk as it is."""
    return str(error) if local_folder(place) is not None else complaint_of(error, storage_options)


def _chained(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def add_lake_files(
    place: str,
    files: Sequence[LakeFile],
    *,
    properties: CommitProperties,
    description: str,
    configuration: Mapping[str, str],
    storage_options: Mapping[str, str] | None = None,
) -> None:
    """Make files that are there the whole content of the table, in one commit; the table is made if there is none.

    Raises:
        DeltaError, OSError: It cannot be written, or somebody else committed at the same time.

    """
    options = dict(storage_options or {}) or None
    now_ms = time.time_ns() // 1_000_000
    added = [
        AddAction(file.name, file.bytes, {}, now_ms, data_change=True, stats=json.dumps({"numRecords": file.rows}))
        for file in files
    ]
    schema = Schema.from_arrow(ROW_SCHEMA)
    try:
        table = DeltaTable(place, storage_options=options)
    except TableNotFoundError:
        create_table_with_add_actions(
            place,
            schema,
            added,
            mode="error",
            description=description,
            configuration=dict(configuration),
            storage_options=options,
            commit_properties=properties,
        )
        return
    actions: list[AddAction | RemoveAction] = [*added]
    table.create_write_transaction(actions, "overwrite", schema, [], commit_properties=properties)
