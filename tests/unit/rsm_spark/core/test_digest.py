"""The state digest: incremental, order-free, told apart by every byte."""

from __future__ import annotations

import hashlib
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsm_spark.core import digest
from rsm_spark.core.digest import DIGEST_MODULUS, StateDigest, digest_bytes, row_term, table_prefix


def test_term_is_the_published_formula() -> None:
    text = b"\0\0\0\1t" + b"\0\0\0\2kk" + b"\0\0\0\3row"
    assert row_term(table_prefix("t"), b"kk", b"row") == int.from_bytes(hashlib.sha256(text).digest()[:16], "big")


def test_bytes_are_sixteen_and_big_endian() -> None:
    assert digest_bytes(1) == b"\0" * 15 + b"\1"


_rows = st.dictionaries(st.tuples(st.sampled_from("ab"), st.binary(max_size=3)), st.binary(max_size=3), max_size=8)


@given(before=_rows, after=_rows)
def test_digest_depends_on_the_rows_alone_whatever_the_way(before, after) -> None:
    way, direct = StateDigest(), StateDigest()
    for (table, key), row in before.items():
        way.replace(table, key, None, row)
    for table, key in {**before, **after}:
        way.replace(table, key, before.get((table, key)), after.get((table, key)))
    for (table, key), row in reversed(after.items()):
        direct.replace(table, key, None, row)
    assert way.value == direct.value
    assert 0 <= way.value < DIGEST_MODULUS


_writes = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from([b"x", b"y", b"z", b"w"]), st.none() | st.binary(max_size=1)),
    max_size=40,
)


@pytest.mark.parametrize("terms_max", [0, 1, 3, digest.TERMS_MAX])
@given(writes=_writes)
def test_terms_that_are_remembered_are_those_of_the_rows(writes, terms_max) -> None:
    rows: dict[tuple[str, bytes], bytes | None] = {}
    way = StateDigest()
    with mock.patch.object(digest, "TERMS_MAX", terms_max):
        for table, key, row in writes:
            way.replace(table, key, rows.get((table, key)), row)
            rows[table, key] = row
    terms = [row_term(table_prefix(table), key, row) for (table, key), row in rows.items() if row is not None]
    assert way.value == sum(terms) % DIGEST_MODULUS


def test_no_more_terms_are_remembered_than_the_bound_says() -> None:
    way = StateDigest()
    with mock.patch.object(digest, "TERMS_MAX", 100):
        for number in range(2_000):
            way.replace(f"t{number % 3}", b"%d" % number, None, b"row")
            held = sum(len(terms.young) + len(terms.old) for terms in way._tables.values())
            assert held <= 2 * 100 + 1


def test_bytes_that_move_between_key_and_row_change_the_digest() -> None:
    prefix = table_prefix("t")
    assert row_term(prefix, b"ab", b"c") != row_term(prefix, b"a", b"bc")
    assert row_term(table_prefix("ta"), b"b", b"c") != row_term(prefix, b"ab", b"c")
