"""Values between SQLite and PostgreSQL's clients, in text and in binary."""

from __future__ import annotations

import datetime as dt
import json
import struct
import uuid
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.adapt import Transformer
from psycopg.pq import Format

from rsm_spark.sql.pg import values as v
from rsm_spark.sql.pg.faults import PgFault


def _sent(value: Any, form: Format) -> tuple[int, bytes | None]:
    """Return type and bytes as psycopg sends a value."""
    transformer = Transformer(None)
    dumper = transformer.get_dumper(value, psycopg.adapt.PyFormat.from_pq(form))
    dumped = dumper.dump(value)
    return dumper.oid, None if dumped is None else bytes(dumped)


def _read(kind: int, form: int, content: bytes | None) -> Any:
    """Return what psycopg makes of bytes that it gets."""
    transformer = Transformer(None)
    return None if content is None else transformer.get_loader(kind, Format(form)).load(content)


_BACK: dict[int, st.SearchStrategy[Any]] = {
    v.INT8: st.integers(-(2**63), 2**63 - 1),
    v.FLOAT8: st.floats(allow_nan=False),
    v.TEXT: st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    v.BYTEA: st.binary(),
    v.BOOL: st.booleans(),
    v.DATE: st.dates(),
    v.TIMESTAMP: st.datetimes(),
    v.TIMESTAMPTZ: st.datetimes(dt.datetime(2, 1, 1), dt.datetime(9998, 1, 1), timezones=st.just(dt.UTC)),
    v.TIME: st.times(),
    v.UUID_TYPE: st.uuids(),
    v.NUMERIC: st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**14), max_value=10**14),
}


@pytest.mark.parametrize(
    ("kind", "form"),
    # Without a connection psycopg writes bytea for SQL's text, not for the wire.
    [(kind, form) for kind in _BACK for form in (Format.TEXT, Format.BINARY) if (kind, form) != (v.BYTEA, Format.TEXT)],
)
def test_what_psycopg_sends_it_gets_back(kind: int, form: Format) -> None:
    @given(_BACK[kind])
    def check(value: Any) -> None:
        sent_as, content = _sent(value, form)
        kept = v.parameter_value(sent_as, form, content)
        assert _read(kind, form, v.shown_value(kind, form, kept)) == value

    check()


def test_arrays_come_as_json() -> None:
    for form in (Format.TEXT, Format.BINARY):
        kind, content = _sent([1, 2, None], form)
        assert json.loads(str(v.parameter_value(kind, form, content))) == [1, 2, None]
    assert v.parameter_value(1009, 0, b'{a,"b \\"c",NULL}') == '["a","b \\"c",null]'
    assert v.parameter_value(1016, 0, b"{}") == "[]"


def test_numbers_are_kept_exactly_or_as_texts() -> None:
    for text, kept in (
        ("1", 1),
        ("-7.00", -7),
        ("1.5", 1.5),
        ("0.1", 0.1),
        ("12345678901234567890.5", "12345678901234567890.5"),
    ):
        assert v.parameter_value(v.NUMERIC, 0, text.encode()) == kept
        kind, content = _sent(Decimal(text), Format.BINARY)
        assert v.parameter_value(kind, 1, content) == kept


@pytest.mark.parametrize(
    ("kind", "form", "content"),
    [
        (v.INT4, 0, b"x"), (v.INT4, 1, b"x"), (v.INT8, 0, b"9" * 30), (v.BOOL, 0, b"perhaps"), (v.TEXT, 0, b"\xff"),
        (v.TEXT, 0, b"a\0b"), (v.BYTEA, 0, b"\\xzz"), (v.NUMERIC, 0, b"1e"), (v.NUMERIC, 1, b"\0"),
        (v.DATE, 1, b"\x7f\xff\xff\xff"),
        (v.TIMESTAMP, 1, struct.pack("!q", 2**62)), (v.UUID_TYPE, 1, b"x"), (1016, 0, b"1,2"),
        (1016, 1, b"\0\0\0\2" + b"\0" * 20),
        (99999, 1, b"x"), (v.TEXT, 2, b"x"), (v.NUMERIC, 1, struct.pack("!hhHH", 32000, 0, 0, 0)),
    ],
)  # fmt: skip
def test_what_is_no_value_of_its_type_is_refused(kind: int, form: int, content: bytes) -> None:
    with pytest.raises(PgFault) as refused:
        v.parameter_value(kind, form, content)
    assert refused.value.code in ("22P02", "22021", "0A000", "08P01")


@given(st.sampled_from([*v._FROM_BINARY, *v.ARRAYS]), st.sampled_from([0, 1]), st.binary(max_size=40))
def test_any_bytes_are_a_value_or_refused(kind: int, form: int, content: bytes) -> None:
    try:
        found = v.parameter_value(kind, form, content)
    except PgFault:
        return
    assert found is None or isinstance(found, int | float | str | bytes)


def test_a_value_that_is_none_of_its_column_is_refused_in_binary_and_shown_as_text() -> None:
    for kind, value in (
        (v.BOOL, 5),
        (v.TIMESTAMP, "soon"),
        (v.DATE, 7),
        (v.UUID_TYPE, "x"),
        (v.INT8, "x"),
        (v.NUMERIC, b"x"),
    ):
        with pytest.raises(PgFault):
            v.shown_value(kind, 1, value)
        assert v.shown_value(kind, 0, value) is not None


def test_declared_types_are_those_of_postgresql_and_else_sqlites_affinities() -> None:
    names = {
        "INTEGER": v.INT8, "varchar(30)": v.VARCHAR, "NUMERIC(10, 2)": v.NUMERIC, "double precision": v.FLOAT8,
        "": None, "MYBLOB": v.BYTEA,
        "TIMESTAMP WITH TIME ZONE": v.TIMESTAMPTZ, "UNSIGNED BIG INT": v.INT8, "NATIVE CHARACTER(70)": v.TEXT,
        "anything": v.TEXT, "timestamp(3)": v.TIMESTAMP,
    }  # fmt: skip
    assert {name: v.declared_type(name) for name in names} == names


def test_uuid_columns_are_shown_as_uuids() -> None:
    one = uuid.UUID(int=7)
    assert v.shown_value(v.UUID_TYPE, 1, str(one)) == one.bytes
