"""History of any machine by SQL: views over the Delta tables in a folder.

Of a table with a row a change (`jobs/materialize.py --mode append`) there are three:

name_changes    the changes, as they are kept
name_versions   each row a key has had, with the interval in which it was the row: from `_revision` and `_logged_at`
                until before `_until_revision` and `_until_at`; null = it is the row still
name            the rows as they are now

A predicate on key columns reaches the files: it stands inside of the window by which a version finds its successor. Of
a table with a row a key, and of the tables that `jobs/broker_history.py` keeps, there is the table itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from connectors.delta.columns import FOLD_COLUMN, LOGGED_AT_COLUMN, REVISION_COLUMN
from connectors.delta.place import APPEND_MODE, DESCRIPTION_PROPERTY, LOG_ID_PROPERTY, MODE_PROPERTY
from connectors.errors import ForeignTableError
from ledger.decoding import json_decoder
from rsm_spark.core.machine import Fold, TableDescription

UNTIL_REVISION_COLUMN = "_until_revision"
"""Of a version: revision of the record by which it was the row no more."""

UNTIL_AT_COLUMN = "_until_at"
"""Of a version: logged time of that record."""


def history_views(spark: SparkSession, folder: str, *, prefix: str = "", permanent: bool = False) -> list[str]:
    """Create views of the tables in a folder; return their names, in order.

    Args:
        spark: A classic session with Delta.
        folder: Folder or URI with a Delta table for each table of one machine, or of a broker's history.
        prefix: Of the names of the views; two folders need two.
        permanent: Views of the session's catalog; else they end with the session.

    Raises:
        ForeignTableError: The folder has no table that was made of a log's records.

    """
    views: dict[str, str] = {}
    for name, place in sorted(_tables(spark, folder)):
        properties = spark.sql(f"DESCRIBE DETAIL {_table(place)}").collect()[0].properties
        if LOG_ID_PROPERTY not in properties:
            continue
        if properties.get(MODE_PROPERTY) != APPEND_MODE:
            views[prefix + name] = _select("*", _table(place))
            continue
        described = json_decoder(TableDescription).decode(properties[DESCRIPTION_PROPERTY])
        versions = _versions(_table(place), [field.name for field in described.key])
        views[f"{prefix}{name}_changes"] = _select("*", _table(place))
        views[f"{prefix}{name}_versions"] = versions
        views[prefix + name] = _select(
            f"* EXCEPT ({UNTIL_REVISION_COLUMN}, {UNTIL_AT_COLUMN})",
            f"({versions})",
            f"{UNTIL_REVISION_COLUMN} IS NULL",
        )
    if not views:
        raise ForeignTableError(
            f"{folder}: no Delta table in this folder was made of a log's records: name the folder that "
            "jobs/materialize.py --tables, or jobs/broker_history.py --lake, writes to"
        )
    kind = "VIEW" if permanent else "TEMPORARY VIEW"
    for name, query in views.items():
        spark.sql(f"CREATE OR REPLACE {kind} {_quoted(name)} AS {query}")
    return list(views)


def _versions(table: str, key: list[str]) -> str:
    of_a_key = f"PARTITION BY {', '.join(map(_quoted, key))} " if key else ""
    window = f"OVER ({of_a_key}ORDER BY {REVISION_COLUMN})"
    revision = f"lead({REVISION_COLUMN}) {window} AS {UNTIL_REVISION_COLUMN}"
    logged_at = f"lead({LOGGED_AT_COLUMN}) {window} AS {UNTIL_AT_COLUMN}"
    changes = _select(f"*, {revision}, {logged_at}", table)
    return _select(f"* EXCEPT ({FOLD_COLUMN})", f"({changes})", f"{FOLD_COLUMN} <> '{Fold.DELETE}'")


def _select(columns: str, source: str, condition: str = "") -> str:
    where = f" WHERE {condition}" if condition else ""
    return f"SELECT {columns} FROM {source}{where}"  # noqa: S608 - names are ours, or quoted


def _tables(spark: SparkSession, folder: str) -> Iterator[tuple[str, str]]:
    """Yield name and place of the Delta tables in a folder, wherever Spark can read it."""
    jvm: Any = spark._jvm
    place = jvm.org.apache.hadoop.fs.Path(folder)
    files = place.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    if not files.exists(place):
        raise ForeignTableError(f"{folder}: there is no such folder")
    for one in files.listStatus(place):
        if files.exists(jvm.org.apache.hadoop.fs.Path(one.getPath(), "_delta_log")):
            yield one.getPath().getName(), one.getPath().toString()


def _table(place: str) -> str:
    return f"delta.{_quoted(place)}"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
