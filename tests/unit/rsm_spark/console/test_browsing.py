"""Values and keys of logs as text, and back."""

from __future__ import annotations

import pytest

from ledger.http.problems import HttpProblem
from rsm_spark.console.browsing import key_of, key_text, record_row, value_text


@pytest.mark.parametrize("key", [b"key", "größe".encode(), b"\xff\x00", b"0x12", b"", b"a\x00b", bytes(range(256))])
def test_a_key_as_text_is_read_back_as_the_same_key(key: bytes) -> None:
    assert key_of(key_text(key)) == key


def test_what_is_no_hex_is_refused() -> None:
    with pytest.raises(HttpProblem, match="hex digits"):
        key_of("0xzz")


@pytest.mark.parametrize(
    ("value", "text", "is_cut"),
    [
        (b"bytes", "bytes", False),
        (b"\xff", "0xff", False),
        ("text", "text", False),
        (None, "null", False),
        ([1, b"x", {"a": b"\xff"}], '[1,"x",{"a":{"base64":"/w=="}}]', False),
        (b"x" * 10**6, "x" * 2_000 + "…", True),
        (b"\xff" * 10**6, "0x" + "ff" * 999 + "…", True),
    ],
)
def test_a_value_is_text_and_not_too_long(value: object, text: str, is_cut: bool) -> None:
    assert value_text(value) == (text, is_cut)


def test_a_record_has_its_fields_as_text() -> None:
    told = {
        "revision": 4, "type": "put", "logged_ms": 1, "leader_epoch": 2, "ledger_id": 3, "entry_id": 0,
        "fields": {"key": b"k", "ttl_ms": 5},
    }  # fmt: skip
    assert record_row(told).fields == {"key": "k", "ttl_ms": "5"}
