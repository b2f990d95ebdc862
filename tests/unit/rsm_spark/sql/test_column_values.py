"""What a column takes of a file, and how an import cuts CSV."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from ledger.errors import UsageError
from rsm_spark.sql.cli.column_values import Affinity, affinity_of, checked, from_text
from rsm_spark.sql.cli.exporting import literal
from rsm_spark.sql.cli.file_rows import CsvFile, open_rows_file
from rsm_spark.sql.engine.scripts import StatementBuffer, split_script
from rsm_spark.sql.messages import SqlValue


@pytest.mark.parametrize(
    ("declared", "affinity"),
    [
        ("BIGINT", Affinity.INTEGER),
        ("CHARINT", Affinity.INTEGER),
        ("VARCHAR(9)", Affinity.TEXT),
        ("", Affinity.BLOB),
        ("blob", Affinity.BLOB),
        ("DOUBLE", Affinity.REAL),
        ("DATE", Affinity.NUMERIC),
    ],
)
def test_affinities_are_sqlites(declared: str, affinity: Affinity) -> None:
    assert affinity_of(declared) is affinity


@pytest.mark.parametrize(
    ("text", "declared", "value"),
    [
        ("-5", "INTEGER", -5),
        (" 7 ", "INT", 7),
        ("1e3", "REAL", 1000.0),
        ("007", "TEXT", "007"),
        ("\\x00ff", "BLOB", b"\x00\xff"),
        ("plain", "BLOB", "plain"),
        ("2026-01-02", "DATE", "2026-01-02"),
    ],
)
def test_texts_become_what_their_column_has(text: str, declared: str, value: object) -> None:
    found = from_text(text, declared)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "declared"),
    [
        ("many", "INTEGER"),
        ("1.5", "INTEGER"),
        (str(2**63), "INTEGER"),
        ("x", "REAL"),
        ("nan", "REAL"),
        ("\\x0", "BLOB"),
        ("y" * (1024 * 1024 + 1), "TEXT"),
    ],
)
def test_texts_that_a_column_does_not_take_are_refused(text: str, declared: str) -> None:
    with pytest.raises(ValueError, match="."):
        from_text(text, declared)


def test_values_are_taken_as_they_are_or_refused() -> None:
    assert checked(True, "BOOLEAN") == 1
    assert checked(2.0, "INTEGER") == 2.0
    assert checked(None, "INTEGER") is None
    for value, declared in (("a", "REAL"), (2.5, "INTEGER"), (float("nan"), ""), (2**64, "")):
        with pytest.raises(ValueError, match="."):
            checked(value, declared)


def test_csv_is_cut_as_copy_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b'\xef\xbb\xbfid,"a, b",c\r\n1,,""\r\n2,"x\n""y""",\\N\n')
    file = CsvFile(path)
    assert file.columns == ["id", "a, b", "c"]
    assert list(file.rows(["INTEGER", "TEXT", "TEXT"])) == [(1, None, ""), (2, 'x\n"y"', "\\N")]
    assert file.create('t"') == 'CREATE TABLE "t""" ("id" INTEGER, "a, b" TEXT, "c" TEXT)'
    path.write_text("id,b,c\n1,x,2\n2,y,z\n")
    with pytest.raises(UsageError, match="row 2, column c"):
        list(CsvFile(path).rows(["INTEGER", "TEXT", "INTEGER"]))
    path.write_text("id,b\n1,x\n2\n")
    with pytest.raises(UsageError, match="line 2 has 1 values, not 2"):
        list(CsvFile(path).rows(["INTEGER", "TEXT"]))
    for wrong in ("a,a\n", "a,\n", ""):
        path.write_text(wrong)
        with pytest.raises(UsageError, match="names"):
            CsvFile(path)


def test_files_are_known_by_their_names(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        open_rows_file(tmp_path / "a.csv", "t")
    for name, words in (("a.txt", "expected a name"), ("a.parquet", "a.parquet"), ("a.db", "SQLite cannot open it")):
        (tmp_path / name).write_bytes(b"neither this nor that" * 100)
        with pytest.raises(UsageError, match=words):
            open_rows_file(tmp_path / name, "t")


def test_literals_are_read_back_as_they_were() -> None:
    values: list[SqlValue] = [None, -(2**63), 0.1, 1e300, float("inf"), float("-inf"), "it's", "a\0b", b"", b"\x00'"]
    connection = apsw.Connection(":memory:")
    (row,) = connection.execute(f"SELECT {', '.join(map(literal, values))}").fetchall()
    assert list(row) == values


def test_statements_are_whole_at_their_last_semicolon() -> None:
    buffer = StatementBuffer()
    assert buffer.add("SELECT ';';  -- x;\nSEL") == ["SELECT ';';"]
    assert buffer.add("ECT 2") == []
    assert buffer.add("; CREATE TRIGGER t AFTER INSERT ON a BEGIN SELECT 1;\n") == ["-- x;\nSELECT 2;"]
    assert buffer.add("END; SELECT 3") == ["CREATE TRIGGER t AFTER INSERT ON a BEGIN SELECT 1;\nEND;"]
    assert buffer.end() == "SELECT 3"
    assert buffer.end() == ""
    assert split_script("/* ; */; SELECT 1; -- end") == ["SELECT 1;"]
