"""`rsm sql import`: a file of rows into a table."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from ledger.configuration import options_command
from ledger.errors import UsageError
from rsm_spark.cli.copying import RowProgress
from rsm_spark.cli.terminal import print_result, run
from rsm_spark.sql.cli.file_rows import FileRows, digest_of, open_rows_file
from rsm_spark.sql.cli.import_batches import (
    BATCH_ROWS_MAX,
    ImportOutcome,
    ImportPlan,
    ImportRunner,
    matched,
    table_columns,
)
from rsm_spark.sql.cli.sql_options import SqlOptions
from rsm_spark.sql.client.client import SqlClient


@options_command
def import_file(
    at: SqlOptions,
    file: Annotated[Path, typer.Argument(help="File of rows: .csv, .tsv, .parquet, .db, .sqlite or .sqlite3.")],
    table: Annotated[str, typer.Option("--table", help="Table that the rows go into.")],
    source_table: Annotated[
        str | None, typer.Option("--source-table", help="Table of a file of SQLite.", show_default="as --table")
    ] = None,
    create: Annotated[bool, typer.Option("--create", help="Make the table if there is none.")] = False,
    batch_rows: Annotated[
        int, typer.Option("--batch-rows", help="Rows of one transaction at most.", min=1, max=BATCH_ROWS_MAX)
    ] = 5_000,
    skip_rows: Annotated[
        int, typer.Option("--skip-rows", help="Leave out so many rows at the beginning of the file.", min=0)
    ] = 0,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", help="Name of the import: the same one goes on where it was.", show_default="the content"
        ),
    ] = None,
    delimiter: Annotated[str, typer.Option("--delimiter", help="Of CSV, between values.")] = ",",
    null: Annotated[str, typer.Option("--null", help="Of CSV: a value without quotes that is NULL.")] = "",
    columns: Annotated[
        str | None,
        typer.Option("--columns", help="Of CSV: names between commas, where the first line has none."),
    ] = None,
) -> None:
    """Insert the rows of a file into a table, in transactions of some thousand; begun again, it goes on.

    All values are looked at before the first row is written. How far it is stands in the table rsm_imports, in the
    same transactions as the rows: each row is inserted once, however often the command is killed and begun again.
    Columns are matched by name; those that the file has not get their defaults.

    Examples:
        rsm sql import item.csv --table item --log shop

        rsm sql import trips.parquet --table trip --create --log shop --json

        rsm sql import old.db --table item --source-table items --log shop

    """
    names = None if columns is None else [one.strip() for one in columns.split(",")]
    rows = open_rows_file(file, source_table or table, delimiter=delimiter, null=null, names=names)
    content = digest_of(file)
    outcome = run(_import(at, file, rows, (table, name or content[:32], content, skip_rows), batch_rows, create))
    document = {
        "table": table,
        "rows": outcome.rows,
        "rows_before": outcome.rows_before,
        "transactions": outcome.transactions,
    }
    before = f", behind {outcome.rows_before:,} that were there" if outcome.rows_before else ""
    text = f"{outcome.rows:,} rows into {table}, in {outcome.transactions:,} transactions{before}"
    print_result(at.json, document, text)


async def _import(
    at: SqlOptions, file: Path, rows: FileRows, how: tuple[str, str, str, int], batch_rows: int, create: bool
) -> ImportOutcome:
    table, name, content, skip_rows = how
    check = _unchanged(file)
    async with await at.connect() as client:
        names, types = await _target(client, rows, table, create)
        told = RowProgress(f"{file.name}: looked at", is_quiet=at.json)

        def _count() -> int:
            count = 0
            for count, _ in enumerate(rows.rows(types), 1):
                told(count)
            return count

        rows_all = await asyncio.to_thread(_count)
        check()
        progress = RowProgress(f"{file.name}: inserted", of=rows_all, is_quiet=at.json)
        plan = ImportPlan(table, names, types, name, content, skip_rows)
        work = ImportRunner(client, plan, rows_all, batch_rows, progress, check)
        done = await work.begin()
        return await work.run(rows.rows(types), done)


async def _target(
    client: SqlClient, rows: FileRows, table: str, create: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the table's columns for those of the file; make the table if that is wanted.

    Raises:
        UsageError: There is no table, or it lacks a column.

    """
    columns = await table_columns(client, table)
    if not columns and not create:
        raise UsageError(f"there is no table {table}: make it, or say --create")
    if not columns:
        await client.execute(await asyncio.to_thread(rows.create, table))
        columns = await table_columns(client, table)
    return matched(rows, columns, table)


def _unchanged(file: Path) -> Callable[[], None]:
    """Return what complains once a file is another one than now."""

    def _seen() -> tuple[int, int, int]:
        found = file.stat()
        return found.st_ino, found.st_size, found.st_mtime_ns

    before = _seen()

    def _check() -> None:
        if _seen() != before:
            raise UsageError(f"{file} was changed while it was read: begin again with a file that stands still")

    return _check
