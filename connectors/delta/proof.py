"""A follower table as evidence: what its commits say of it, and its rows as the log has them. For who checks it.

Written from the formats and apart from the followers' own code: a mistake of theirs must show.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from connectors.delta.position import POSITION_KEY, RENAMED_KEY, TablePosition, decode_position
from connectors.errors import ForeignTableError
from ledger.decoding import json_decoder
from rsm_spark.core.machine import Field, TableDescription
from rsm_spark.core.records import pack
from rsm_spark.snapshots.column_arrays import converted, to_log

_COMMITS_MAX = 10_000
_REVISION = "_revision"
_FOLD = "_fold"
_DELETE = "delete"
_SINCE = "rsm.since"
_PLACE = "rsm.place"
_TYPE = "rsm.type"
_ROWS: list[pa.Field[Any]] = [
    pa.field("table_name", pa.string()),
    pa.field("key", pa.binary()),
    pa.field("row", pa.binary()),
    pa.field("revision", pa.int64()),
]


class FollowerShape(msgspec.Struct, frozen=True):
    """Shape of a follower table, by which its rows become rows of the log again; pickled to tasks.

    Attributes:
        table: Table of the machine.
        key: Key columns, in the order of the log's arrays.
        row: The other columns, with the revision since which rows have them.
        is_history: A row a change (mode append): what is compared is the msgpack array [revision, fold, row | nil].
        converted: Columns whose values have another form in the log.

    """

    table: str
    key: tuple[str, ...]
    row: tuple[tuple[str, int], ...]
    is_history: bool = False
    converted: tuple[Field, ...] = ()

    @property
    def columns(self) -> list[str]:
        """Columns to read."""
        return [*self.key, *(name for name, _ in self.row), _REVISION, *([_FOLD] if self.is_history else [])]

    @property
    def later(self) -> frozenset[str]:
        """Columns that came later: files of before do not have them."""
        return frozenset(name for name, since in self.row if since)

    def packed(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows as the log has them: table_name, key, row, revision."""
        converts = {field.name: to_log(field) for field in self.converted}
        for batch in batches:
            keys = [converted(batch.column(name).to_pylist(), converts.get(name)) for name in self.key]
            others = [converted(batch.column(name).to_pylist(), converts.get(name)) for name, _ in self.row]
            revisions: list[Any] = batch.column(_REVISION).to_pylist()
            since = [at for _, at in self.row]
            widths = [sum(at <= revision for at in since) for revision in revisions] if any(since) else None
            folds: list[Any] | None = batch.column(_FOLD).to_pylist() if self.is_history else None
            rows: list[bytes] = []
            for number in range(batch.num_rows):
                values = [column[number] for column in others]
                row = pack(values if widths is None else values[: widths[number]])
                if folds is not None:
                    # What is gone has no columns: one that has is no such change.
                    is_gone = folds[number] == _DELETE and values.count(None) == len(values)
                    row = pack((revisions[number], folds[number], None if is_gone else row))
                rows.append(row)
            arrays: list[Any] = [
                pa.array([self.table] * batch.num_rows, pa.string()),
                pa.array([pack(values) for values in zip(*keys, strict=True)], pa.binary()),
                pa.array(rows, pa.binary()),
                pa.array(revisions, pa.int64()),
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(_ROWS))


class FollowerEvidence(msgspec.Struct, frozen=True):
    """Evidence of a follower table about itself.

    Attributes:
        place: Path or URI.
        shape: Of its rows.
        newest_version: Of the Delta table.
        positions: Table version and position of each commit that has one, oldest first; of a history those since its
            rows were last written over.
        begun: Position of the commit that made it, empty or with a snapshot's rows; None = that was cleared away.
        foreign_versions: Commits without a position that changed data: nobody knows what they did.

    """

    place: str
    shape: FollowerShape
    newest_version: int
    positions: tuple[tuple[int, TablePosition], ...]
    begun: TablePosition | None
    foreign_versions: tuple[int, ...]


def follower_evidence(place: str, storage_options: Mapping[str, str] | None = None) -> FollowerEvidence:
    """Read what a follower table says of itself.

    Raises:
        ForeignTableError: There is no table, or none that follows a log.

    """
    try:
        table = DeltaTable(place, storage_options=dict(storage_options or {}) or None)
    except TableNotFoundError as error:
        raise ForeignTableError(f"{place}: there is no Delta table") from error
    except (DeltaError, OSError) as error:
        raise ForeignTableError(f"{place}: the Delta table cannot be read: {error}") from error
    properties = table.metadata().configuration
    text = properties.get("rsm.table")
    if text is None:
        raise ForeignTableError(f"{place}: this Delta table follows no log: it was not made by jobs/materialize.py")
    described = json_decoder(TableDescription).decode(text)
    key = tuple(field.name for field in described.key)
    fields = _fields_of(table)
    row = tuple((field["name"], int(field["metadata"].get(_SINCE, 0))) for field in _in_order(fields, key))
    known = {field.name: field for field in (*described.key, *described.row)}
    later = {one["name"]: one["metadata"][_TYPE] for one in fields if _TYPE in one["metadata"]}
    known |= {name: json_decoder(Field).decode(text) for name, text in later.items()}
    is_history = properties.get("rsm.mode", "merge") != "merge"
    positions: list[tuple[int, TablePosition]] = []
    foreign: list[int] = []
    begun: TablePosition | None = None
    for commit in reversed(table.history(_COMMITS_MAX)):
        said = commit.get(POSITION_KEY)
        if said is not None:
            position = decode_position(said, place=place, kind=TablePosition)
            if commit["version"] == 0 or _is_overwrite(commit):
                begun = position
                if is_history:
                    positions.clear()
            positions.append((commit["version"], position))
        elif commit.get("operation") not in _HARMLESS:
            foreign.append(commit["version"])
    return FollowerEvidence(
        place,
        FollowerShape(
            described.name,
            key,
            row,
            is_history,
            tuple(known[name] for name in (*key, *dict(row)) if name in known and to_log(known[name]) is not None),
        ),
        table.version(),
        tuple(positions),
        begun,
        tuple(foreign),
    )


def shape_of_before(
    place: str, version: int, shape: FollowerShape, storage_options: Mapping[str, str] | None = None
) -> FollowerShape:
    """Return the shape with the names and columns that an older version of the table has.

    Args:
        place: Of the table.
        version: Of the table.
        shape: Of its newest version.
        storage_options: For `deltalake`.

    Raises:
        ForeignTableError: The version cannot be read.

    """
    try:
        table = DeltaTable(place, version=version, storage_options=dict(storage_options or {}) or None)
    except (DeltaError, OSError) as error:
        raise ForeignTableError(f"{place} version {version}: the Delta table cannot be read: {error}") from error
    before = [field["name"] for field in _in_order(_fields_of(table), shape.key)]
    names = {name: was for (name, _), was in zip(shape.row, before, strict=False)}
    return msgspec.structs.replace(
        shape,
        row=tuple((names[name], since) for name, since in shape.row if name in names),
        converted=tuple(
            msgspec.structs.replace(field, name=names.get(field.name, field.name))
            for field in shape.converted
            if field.name in names or field.name in shape.key
        ),
    )


def _fields_of(table: DeltaTable) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = msgspec.json.decode(table.schema().to_json())["fields"]
    return fields


def _in_order(fields: Iterable[dict[str, Any]], key: Sequence[str]) -> list[dict[str, Any]]:
    """Return the fields that are no key and not the follower's own, in the order of the log's arrays."""
    others = [field for field in fields if field["name"] not in key and not field["name"].startswith("_")]
    places = {field["name"]: int(field["metadata"].get(_PLACE, at)) for at, field in enumerate(others)}
    return sorted(others, key=lambda field: places[field["name"]])


def _is_overwrite(commit: Mapping[str, Any]) -> bool:
    """Tell whether a commit has other rows than those before; one that only renames columns has the same."""
    mode = str((commit.get("operationParameters") or {}).get("mode", ""))
    return mode.lower() == "overwrite" and RENAMED_KEY not in commit


_HARMLESS = frozenset({
    "OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "CREATE TABLE", "REORG",
    "CLUSTER BY", "ADD FEATURE", "DROP FEATURE", "UPGRADE PROTOCOL",
})  # fmt: skip
