"""Rows of a file that is imported: CSV, Parquet or SQLite's own, read as often as is wanted."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

from ledger.errors import UsageError
from rsm_spark.sql.cli.column_values import TextCounts, checked_rows, created, from_text, type_of_texts
from rsm_spark.sql.messages import SqlValue
from rsm_spark.sql.pg.copying import CopyCommand, CopyRows
from rsm_spark.sql.pg.faults import PgFault

_CHUNK_BYTES: Final = 256 * 1024
SQLITE_SUFFIXES: Final = (".db", ".sqlite", ".sqlite3")


class FileRows(Protocol):
    """A file of rows.

    Attributes:
        columns: Their names.

    """

    columns: Sequence[str]

    def rows(self, types: Sequence[str]) -> Iterator[tuple[SqlValue, ...]]:
        """Iterate over its rows, from the first on.

        Args:
            types: Declared type of each column.

        Raises:
            UsageError: The file is damaged, or a value is none of its column; names row and column.

        """
        ...

    def create(self, table: str) -> str:
        """Return the statement that makes a table for them."""
        ...


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file.

    Raises:
        UsageError: It cannot be read.

    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None


class CsvFile:
    """A CSV file in UTF-8, as COPY writes it: an empty value without quotes is NULL, a quote is doubled.

    Args:
        path: Of it.
        delimiter: Between values, one letter of ASCII.
        null: Text of NULL, where it has no quotes.
        names: Names of its columns; None = its first line has them.

    Raises:
        UsageError: It cannot be read, or has no such line.

    """

    def __init__(self, path: Path, delimiter: str = ",", null: str = "", names: Sequence[str] | None = None) -> None:
        if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '\n\r"\\':
            raise UsageError(f"--delimiter {delimiter!r}: expected one letter of ASCII, no quote and no backslash")
        self._path = path
        self._command = CopyCommand(
            table="", columns="", query="", is_in=True, is_csv=True, delimiter=delimiter.encode(), null=null.encode(),
            quote=b'"', has_header=names is None,
        )  # fmt: skip
        self.columns: Sequence[str] = names if names is not None else self._header()
        if (
            not self.columns
            or not all(self.columns)
            or len({name.lower() for name in self.columns}) < len(self.columns)
        ):
            raise UsageError(
                f"{path}: its columns need names, each its own: {', '.join(self.columns) or 'there are none'}"
            )

    def _header(self) -> list[str]:
        try:
            with self._path.open("rb") as file:
                line = file.readline(_CHUNK_BYTES).removeprefix(b"\xef\xbb\xbf").rstrip(b"\r\n")
        except OSError as error:
            raise UsageError(f"{self._path}: {error.strerror}") from None
        count = line.count(self._command.delimiter) + 1
        plain = self._command._replace(has_header=False)
        for columns in range(count, 0, -1):  # A name in quotes may have the delimiter in it.
            try:
                for row in CopyRows(plain, columns).feed(line + b"\n", is_last=True):
                    return [(value or b"").decode() for value in row]
            except (PgFault, UnicodeDecodeError):
                continue
        return []

    def rows(self, types: Sequence[str]) -> Iterator[tuple[SqlValue, ...]]:
        """Iterate over its rows; see `FileRows.rows`."""
        for number, row in enumerate(self._texts(), 1):
            values: list[SqlValue] = []
            for place, text in enumerate(row):
                try:
                    values.append(None if text is None else from_text(text, types[place]))
                except ValueError as error:
                    raise UsageError(f"{self._path}: row {number}, column {self.columns[place]}: {error}") from None
            yield tuple(values)

    def _texts(self) -> Iterator[list[str | None]]:
        cutter = CopyRows(self._command, len(self.columns))
        number = 0
        try:
            with self._path.open("rb") as file:
                if file.read(3) != b"\xef\xbb\xbf":
                    file.seek(0)
                is_last = False
                while not is_last:
                    chunk = file.read(_CHUNK_BYTES)
                    is_last = not chunk
                    for row in cutter.feed(chunk, is_last=is_last):
                        number += 1
                        yield [None if value is None else value.decode() for value in row]
        except OSError as error:
            raise UsageError(f"{self._path}: {error.strerror}") from None
        except PgFault as fault:
            raise UsageError(f"{self._path}: {fault}") from None
        except UnicodeDecodeError as error:
            raise UsageError(f"{self._path}: row {number}: a value is not UTF-8: {error}") from None

    def create(self, table: str) -> str:
        """Return the statement that makes a table for them: types are those that all values have."""
        kinds = [TextCounts() for _ in self.columns]
        for row in self._texts():
            for kind, text in zip(kinds, row, strict=True):
                if text is not None:
                    kind.add(text)
        return created(table, self.columns, [type_of_texts(kind) for kind in kinds])


class SqliteFile:
    """A table of a file of SQLite.

    Args:
        path: Of it.
        table: Of the file.

    Raises:
        UsageError: There is no such file, or no such table.

    """

    def __init__(self, path: Path, table: str) -> None:
        from rsm_spark.sql.engine.plain_files import PlainFile  # noqa: PLC0415 - SQLite only where it is read

        self._path, self._table = path, table
        self._file = PlainFile(path)
        tables = [name for name in self._file.tables() if not name.startswith("sqlite_")]
        if table not in tables:
            raise UsageError(f"{path} has no table {table}, only {', '.join(tables) or 'none'}: say --source-table")
        self.columns: Sequence[str] = [name for name, _ in self._file.columns(table)]

    def rows(self, types: Sequence[str]) -> Iterator[tuple[SqlValue, ...]]:
        """Iterate over its rows; see `FileRows.rows`."""
        return checked_rows(self._path, self.columns, self._file.rows(self._table, self.columns), types)

    def create(self, table: str) -> str:
        """Return the statement that makes a table for them: as there, if the name is the same."""
        if table == self._table:
            return self._file.schema_of(table)
        return created(table, self.columns, [kind for _, kind in self._file.columns(self._table)])


def open_rows_file(
    path: Path, table: str, *, delimiter: str = ",", null: str = "", names: Sequence[str] | None = None
) -> FileRows:
    """Open a file of rows, by the end of its name.

    Args:
        path: Of it.
        table: Of a file of SQLite.
        delimiter: Of CSV.
        null: Of CSV.
        names: Columns of a CSV file without a line of them.

    Raises:
        UsageError: There is none, or it is no such file.

    """
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file")
    suffix = path.suffix.lower()
    if suffix in SQLITE_SUFFIXES:
        return SqliteFile(path, table)
    if suffix == ".parquet":
        from rsm_spark.sql.cli.parquet_files import ParquetRows  # noqa: PLC0415 - Arrow takes long to import

        return ParquetRows(path)
    if suffix in (".csv", ".tsv"):
        return CsvFile(path, "\t" if suffix == ".tsv" and delimiter == "," else delimiter, null, names)
    raise UsageError(f"{path}: expected a name that ends in .csv, .tsv, .parquet, .db, .sqlite or .sqlite3")
