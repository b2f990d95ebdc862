"""`rsm sql export` and `rsm sql dump`: tables as files, as of one commit."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, TextIO

import typer

from ledger.configuration import options_command
from ledger.errors import UsageError
from rsm_spark.cli.copying import RowProgress
from rsm_spark.cli.terminal import print_result, run
from rsm_spark.sql.cli.column_values import quoted_word
from rsm_spark.sql.cli.file_rows import SQLITE_SUFFIXES
from rsm_spark.sql.cli.sql_options import SqlOptions
from rsm_spark.sql.cli.whole_tables import TableCopy, WholeTables, open_tables
from rsm_spark.sql.client.client import SqlClient
from rsm_spark.sql.limits import STATEMENT_BYTES_MAX
from rsm_spark.sql.messages import SqlValue
from rsm_spark.sql.pg.copying import CopyCommand, copied_row

_INSERT_ROWS: Final = 100
_INSERT_BYTES: Final = 64 * 1024
_CSV: Final = CopyCommand(
    table="", columns="", query="", is_in=False, is_csv=True, delimiter=b",", null=b"", quote=b'"', has_header=True
)


@options_command
def export_file(
    at: SqlOptions,
    file: Annotated[Path, typer.Argument(help="File that is made: .csv, .tsv, .parquet, .db, .sqlite or .sqlite3.")],
    table: Annotated[str | None, typer.Option("--table", help="Table; a file of SQLite may have all.")] = None,
    query: Annotated[str | None, typer.Option("--query", help="Rows of a query, instead of a table's.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that is there.")] = False,
) -> None:
    r"""Write a table, or the rows of a query, into a file; or all tables into a file of SQLite. All as of one commit.

    In CSV NULL is empty, an empty text has quotes, bytes are \x and hexadecimal digits. In Parquet a column has the
    type that it is declared with; one without, or a date, the type of its first values. The file is there when it is
    whole.

    Examples:
        rsm sql export item.csv --table item --log shop

        rsm sql export sales.parquet --query "SELECT * FROM sale WHERE at >= '2026'" --log shop

        rsm sql export shop.db --log shop

    """
    is_sqlite = file.suffix.lower() in SQLITE_SUFFIXES
    if is_sqlite and query is not None:
        raise UsageError("--query: a file of SQLite has whole tables; write .csv or .parquet")
    if not is_sqlite and (table is None) == (query is None):
        raise UsageError("say what is written: --table, or --query")
    if file.exists() and not overwrite:
        raise UsageError(f"{file} is there already: --overwrite replaces it")
    progress = RowProgress(f"{file.name}: written", is_quiet=at.json)
    with _made(file) as path:
        if is_sqlite:
            rows, revision = run(_export_sqlite(at, path, table, progress))
        else:
            sql = query if query is not None else f"SELECT * FROM {quoted_word(table or '')}"
            rows, revision = run(_export_rows(at, path, file.suffix.lower(), sql, progress))
    print_result(
        at.json,
        {"file": str(file), "rows": rows, "revision": revision},
        f"{rows:,} rows into {file}, as of revision {revision}",
    )


@contextlib.contextmanager
def _made(file: Path) -> Iterator[Path]:
    """Lend a name beside a file, which takes the file's place once it is whole."""
    path = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        yield path
        with path.open("rb") as made:
            os.fsync(made.fileno())
        path.replace(file)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror or error}") from None
    finally:
        for left in (path, path.with_name(path.name + "-journal")):
            left.unlink(missing_ok=True)


async def _export_rows(
    at: SqlOptions, path: Path, suffix: str, sql: str, progress: Callable[[int], None]
) -> tuple[int, int]:
    if suffix not in (".csv", ".tsv", ".parquet"):
        raise UsageError(f"{suffix or 'no suffix'}: expected a name that ends in .csv, .tsv, .parquet or .db")
    count = 0
    async with await at.connect() as client, await client.rows(sql) as rows:
        first = await rows.next_rows()
        with _target(path, suffix, rows.columns, first) as put:
            found = first
            while found:
                put(found)
                count += len(found)
                progress(count)
                found = await rows.next_rows()
        return count, rows.revision


@contextlib.contextmanager
def _target(
    path: Path, suffix: str, columns: Sequence[tuple[str, str]], first: Sequence[Sequence[SqlValue]]
) -> Iterator[Callable[[Sequence[Sequence[SqlValue]]], None]]:
    if suffix == ".parquet":
        from rsm_spark.sql.cli.parquet_files import ParquetSink  # noqa: PLC0415 - Arrow takes long to import

        target = ParquetSink(path, columns, first)
        try:
            yield target.put
        finally:
            target.close()
        return
    with path.open("wb") as file:
        yield _csv_writer(file, "\t" if suffix == ".tsv" else ",", [name for name, _ in columns])


def _csv_writer(file: BinaryIO, delimiter: str, names: Sequence[str]) -> Callable[[Sequence[Sequence[SqlValue]]], None]:
    command = _CSV._replace(delimiter=delimiter.encode())
    file.write(copied_row(command, [name.encode() for name in names]))

    def _put(rows: Sequence[Sequence[SqlValue]]) -> None:
        file.writelines(copied_row(command, [_csv_value(value) for value in row]) for row in rows)

    return _put


def _csv_value(value: SqlValue) -> bytes | None:
    if value is None:
        return None
    return b"\\x" + value.hex().encode() if isinstance(value, bytes) else str(value).encode()


async def _export_sqlite(
    at: SqlOptions, path: Path, table: str | None, progress: Callable[[int], None]
) -> tuple[int, int]:
    from rsm_spark.sql.engine.plain_files import PlainFile  # noqa: PLC0415 - SQLite only where it is written

    count = 0
    async with await at.connect() as client, _whole(client, table) as whole:
        file = PlainFile(path, may_write=True)
        try:
            for one in whole.tables:
                file.run(one.sql)
            async for place, rows in whole.rows():
                one = whole.tables[place]
                file.put(one.name, [name for name, _ in one.columns], rows)
                count += len(rows)
                progress(count)
            for other in whole.others:
                file.run(other.sql)
            for name, value in whole.sequences.items():
                if table in (None, name):
                    file.set_sequence(name, value)
            file.keep()
        finally:
            file.close()
        return count, whole.revision


@contextlib.asynccontextmanager
async def _whole(client: SqlClient, table: str | None) -> AsyncIterator[WholeTables]:
    whole = await open_tables(client, table)
    try:
        yield whole
    finally:
        await whole.close()


@options_command
def dump(
    at: SqlOptions,
    table: Annotated[str | None, typer.Option("--table", help="This one alone.", show_default="all")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="File that is made, or replaced.", show_default="standard output")
    ] = None,
    schema_only: Annotated[bool, typer.Option("--schema-only", help="No rows.")] = False,
) -> None:
    """Write tables as SQL text, as of one commit: `rsm sql script` and `sqlite3` make them again of it.

    Tables come first, each behind those that it refers to, then rows, then indexes, views and triggers. The highest id
    that AUTOINCREMENT gave is in a file of SQLite alone: `rsm sql export shop.db`.

    Examples:
        rsm sql dump --log shop > shop.sql

        rsm sql dump --log shop --table item --output item.sql --json

    """

    async def _dump(target: TextIO) -> tuple[int, int]:
        async with await at.connect() as client, _whole(client, table) as whole:
            rows = await _write_sql(whole, target, schema_only=schema_only)
            return rows, whole.revision

    if output is None:
        if at.json:
            raise UsageError("--json: standard output has the SQL; say --output FILE")
        run(_dump(sys.stdout))
        sys.stdout.flush()
        return
    with _made(output) as path, path.open("w", encoding="utf-8") as file:
        rows, revision = run(_dump(file))
    text = f"{rows:,} rows into {output}, as of revision {revision}"
    print_result(at.json, {"file": str(output), "rows": rows, "revision": revision}, text)


async def _write_sql(whole: WholeTables, target: TextIO, *, schema_only: bool) -> int:
    target.write(f"-- revision {whole.revision}\n")
    target.writelines(f"{table.sql};\n" for table in whole.tables)
    count = 0
    if not schema_only:
        async for place, rows in whole.rows():
            count += len(rows)
            for statement in _inserts(whole.tables[place], rows):
                if len(statement.encode()) > STATEMENT_BYTES_MAX:
                    typer.echo(
                        f"a row of {whole.tables[place].name} is longer than a statement may be "
                        f"({STATEMENT_BYTES_MAX} bytes): sqlite3 takes it, rsm sql script does not; "
                        "rsm sql export and import do",
                        err=True,
                    )
                target.write(statement)
    target.writelines(f"{other.sql};\n" for other in whole.others)
    return count


def _inserts(table: TableCopy, rows: Sequence[Sequence[Any]]) -> Iterator[str]:
    """Yield INSERT statements of some rows each."""
    names = ", ".join(quoted_word(name) for name, _ in table.columns)
    head = f"INSERT INTO {quoted_word(table.name)} ({names}) VALUES\n"
    texts: list[str] = []
    size = 0
    for row in rows:
        text = f"({', '.join(map(literal, row))})"
        if texts and (len(texts) >= _INSERT_ROWS or size + len(text) > _INSERT_BYTES):
            yield head + ",\n".join(texts) + ";\n"
            texts, size = [], 0
        texts.append(text)
        size += len(text)
    if texts:
        yield head + ",\n".join(texts) + ";\n"


def literal(value: SqlValue) -> str:
    """Return a value as SQL has it; a text with a zero byte in it by its bytes."""
    match value:
        case None:
            return "NULL"
        case float() if value in (float("inf"), float("-inf")):
            return "9e999" if value > 0 else "-9e999"
        case int() | float():
            return repr(value)
        case str() if "\0" in value:
            return f"CAST(x'{value.encode().hex()}' AS TEXT)"
        case str():
            return "'" + value.replace("'", "''") + "'"
    return f"x'{value.hex()}'"
