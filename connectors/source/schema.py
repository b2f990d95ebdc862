"""Columns of the source as data; `connectors.source.arrow` makes Arrow's of them. Import-light: Spark asks often.

`rows=raw`, a row an entry; the columns from `log` and from `revision` to `logged_at` are null for plain ledgers:

| column | meaning |
| --- | --- |
| log | name of the log |
| ledger_id, entry_id | its place |
| length | payload bytes of the ledger up to this entry, inclusive |
| revision | of its first record; of the next one if it holds none |
| record_count, leader_epoch, logged_at | from its envelope |
| payload | its bytes |

The LAC in an entry's header is left out on purpose: it differs between replicas of one entry after a recovery, and a
source must read the same rows again.

`rows=records`, a row a record of a log:

| column | meaning |
| --- | --- |
| log, ledger_id, entry_id | its place |
| revision | its number in the log: 1, 2, 3, … without gaps |
| leader_epoch, logged_at | from its entry's envelope |
| type, name | number and name of its type, as the machine (or the kernel) describes it |
| session, sequence, answered_up_to, reply | head of the client's command, on its first record; else null |
| table_name, fold | the table whose row it decides, and how: `upsert`, `delete`, `none`; null for the kernel's own |
| key, row | canonical msgpack bytes of that row's key and other columns; `row` is null for a delete |
| fields | msgpack array of all its fields; null where `key` and `row` hold every one of them already |
| entry_hash | on the last record of an entry: SHA-256 of its payload, the prefix hash after it |

`rows=kafka`, in the columns of Spark's Kafka source. Of a log: a row for each record of the machine (the kernel's own
are left out, so that offsets have gaps, as those of compacted topics have):

| column | meaning |
| --- | --- |
| key, value | the key and the row: the plain bytes or the UTF-8 of the text where that is one column of type bytes or |
| | str, else their msgpack array. A delete has no value (a tombstone). A record of no table has no key, and its |
| | fields as value; so has one whose description was trimmed |
| topic, partition | the log's name, 0; the name of a partitioned log and the number of the partition, if the query |
| | names the whole |
| offset | its revision |
| timestamp, timestampType | logged time, 1 (LogAppendTime) |
| headers | with `includeHeaders`: `name`, `table`, `fold` as far as there are such |

Of plain ledgers: `value` is the payload, `topic` is `ledgers`, `partition` the ledger id, `offset` the entry id;
`timestamp` is null and `timestampType` -1.

`rows=table`, a row a change of one table of the machine: the columns of its key and of its row, typed, and

| column | meaning |
| --- | --- |
| _fold | `upsert` or `delete`; the columns of the row are null for a delete |
| _revision, _logged_at | of the record |
| _extra | name -> msgpack bytes of what the record's description has and the query's columns have not: columns |
| | that were added after the query started; null for a delete, and if there are none |
| _partition | of a partitioned log, which option `log` names: the number of the record's partition |

Columns of the query that the description of a record does not have are null. A column that was renamed is one column:
it is read under the query's name from records of before and of after.

With `badRecords=column` each kind has one more column, `_error`: what is wrong with an entry or a record that cannot be
decoded; its other columns hold what is known of it.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from typing import NamedTuple

from connectors.errors import OptionError
from connectors.spark_types import TYPES_SHOWN, is_column_type, spark_type
from ledger.decoding import json_decoder
from rsm_spark.core.machine import TableDescription


class RowColumn(NamedTuple):
    """A column of the source.

    Attributes:
        name: Its name.
        type: In Spark's words.
        was: Names that it had in earlier versions of the machine: in their records it has these.

    """

    name: str
    type: str
    was: tuple[str, ...] = ()


def _columns(text: str) -> tuple[RowColumn, ...]:
    return tuple(RowColumn(name, kind) for name, kind in (part.split(" ", 1) for part in text.split("; ")))


RAW_COLUMNS = _columns(
    "log string; ledger_id bigint; entry_id bigint; length bigint; revision bigint; record_count int; "
    "leader_epoch bigint; logged_at timestamp; payload binary"
)
"""`rows=raw`."""

RECORD_COLUMNS = _columns(
    "log string; ledger_id bigint; entry_id bigint; revision bigint; leader_epoch bigint; logged_at timestamp; "
    "type int; name string; session binary; sequence bigint; answered_up_to bigint; reply binary; table_name string; "
    "fold string; key binary; row binary; fields binary; entry_hash binary"
)
"""`rows=records`."""

KAFKA_COLUMNS = _columns(
    "key binary; value binary; topic string; partition int; offset bigint; timestamp timestamp; timestampType int"
)
"""`rows=kafka`."""

KAFKA_HEADERS = RowColumn("headers", "array<struct<key:string,value:binary>>")
"""`rows=kafka` with `includeHeaders`."""

FOLD_COLUMN = RowColumn("_fold", "string")
REVISION_COLUMN = RowColumn("_revision", "bigint")
LOGGED_COLUMN = RowColumn("_logged_at", "timestamp")
EXTRA_COLUMN = RowColumn("_extra", "map<string,binary>")
PARTITION_COLUMN = RowColumn("_partition", "int")
"""`rows=table` of a partitioned log."""

ERROR_COLUMN = RowColumn("_error", "string")
"""`badRecords=column`."""

_WAS = "was "
_PLAIN_NAME = re.compile("[a-zA-Z_][a-zA-Z_0-9]*")
_TABLE_OWN = (FOLD_COLUMN, REVISION_COLUMN, LOGGED_COLUMN, EXTRA_COLUMN)


def table_columns(table: TableDescription, *, is_partitioned: bool = False) -> tuple[RowColumn, ...]:
    """Return the columns of `rows=table`.

    Args:
        table: Of the machine.
        is_partitioned: Whether the option `log` names a partitioned log.

    Raises:
        OptionError: Two of them would have the same name.

    """
    own = tuple(RowColumn(field.name, spark_type(field), field.was) for field in (*table.key, *table.row))
    columns = (*own, *_TABLE_OWN, *([PARTITION_COLUMN] if is_partitioned else []))
    # Spark does not tell names apart by their case.
    names = [column.name.lower() for column in columns] + [ERROR_COLUMN.name]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise OptionError(
            f"option rows=table: table {table.name} has columns that Spark or this source cannot tell apart: "
            f"{', '.join(twice)}; read rows=records"
        )
    return columns


def pick_columns(
    columns: Sequence[RowColumn], wanted: Sequence[str], *, has_errors: bool = False
) -> tuple[RowColumn, ...]:
    """Return the columns that the option `columns` names, in its order.

    Args:
        columns: What there is.
        wanted: Names; () = all.
        has_errors: Whether the error column is there too; it stands last unless `wanted` names it.

    Raises:
        OptionError: It names one that there is not.

    """
    offered = (*columns, ERROR_COLUMN) if has_errors else tuple(columns)
    if not wanted:
        return offered
    by_lower = {column.name.lower(): column for column in offered}
    unknown = [name for name in wanted if name.lower() not in by_lower]
    if unknown:
        near = difflib.get_close_matches(unknown[0].lower(), list(by_lower), n=1, cutoff=0.6)
        hint = f"did you mean {by_lower[near[0]].name}? " if near else ""
        raise OptionError(
            f"option columns names {', '.join(unknown)}: {hint}there are {', '.join(column.name for column in offered)}"
        )
    picked = tuple(by_lower[name.lower()] for name in wanted)
    return (*picked, ERROR_COLUMN) if has_errors and ERROR_COLUMN not in picked else picked


def check_table_schema(columns: Sequence[RowColumn]) -> None:
    """Check columns that the user gave by `.schema(…)`, which rows=table takes: names decide what is read.

    Raises:
        OptionError: One of them has a type that no column of its name can have.

    """
    own = {column.name: column.type for column in (*_TABLE_OWN, PARTITION_COLUMN, ERROR_COLUMN)}
    for name, kind, _ in columns:
        if name in own and kind != own[name]:
            raise OptionError(f"rows=table: column {name} of the schema is {kind}; it may be {own[name]}")
        if name not in own and not is_column_type(kind):
            raise OptionError(f"rows=table: column {name} of the schema is {kind}; it may be {TYPES_SHOWN}")


def ddl_of(columns: Sequence[RowColumn]) -> str:
    """Return Spark's schema."""
    return ", ".join(f"{_quoted(column.name)} {column.type}{_comment(column.was)}" for column in columns)


def _comment(was: tuple[str, ...]) -> str:
    """Return what Spark keeps of earlier names, and hands back with the schema; nothing where they need escapes."""
    text = comment_of(was)
    return f" COMMENT '{text}'" if text and not {"'", "\\"} & set(text) else ""


def comment_of(was: tuple[str, ...]) -> str:
    """Return the comment of a column that tells its earlier names; "" if it had none."""
    return f"{_WAS}{json.dumps(was)}" if was else ""


def names_before(comment: object) -> tuple[str, ...]:
    """Return the earlier names that the comment of a column tells."""
    if not isinstance(comment, str) or not comment.startswith(_WAS):
        return ()
    try:
        return tuple(json_decoder(list[str]).decode(comment.removeprefix(_WAS)))
    except ValueError:  # A comment of the user's own.
        return ()


def _quoted(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else f"`{name.replace('`', '``')}`"
