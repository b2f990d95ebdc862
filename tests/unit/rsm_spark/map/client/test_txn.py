"""Transactions written as JSON."""

from __future__ import annotations

import pytest

from ledger.errors import UsageError
from rsm_spark.map import messages as m
from rsm_spark.map.cli.txn import transaction_of


def test_a_transaction_of_all_kinds_is_read() -> None:
    text = b"""{
        "if": [{"key": "a", "value": "1"}, {"key": "b", "revision": 7, "relation": ">"}, {"key": "c", "exists": false}],
        "then": [{"put": "a", "value": {"base64": "/w=="}}, {"put": "t", "value": "", "ttl_ms": 5},
                 {"put": "l", "value": "", "lease": 9}, {"delete": "b"}, {"increment": "n", "amount": -2}],
        "else": [{"get": "a"}, {"delete_range": {"prefix": "k/"}}, {"delete_range": {"start": "", "end": "z"}}]
    }"""
    assert transaction_of(text) == (
        [
            m.Compare(b"a", "value", "=", b"1"),
            m.Compare(b"b", "revision", ">", 7),
            m.Compare(b"c", "exists", "=", False),
        ],
        [
            m.Put(b"a", b"\xff"),
            m.PutExpiring(b"t", b"", 5, 0),
            m.PutExpiring(b"l", b"", 0, 9),
            m.Delete(b"b"),
            m.Increment(b"n", -2),
        ],
        [m.Read(b"a"), m.DeleteRange(b"k/", b"k0"), m.DeleteRange(b"", b"z")],
    )
    assert transaction_of(b"{}") == ([], [], [])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "no JSON"),
        (b"[]", "the transaction is an object"),
        (b'{"then": {}}', '"then" of the transaction is a list'),
        (b'{"thn": []}', "did you mean 'then'"),
        (b'{"if": [{"key": "a"}]}', '"if" 1: a comparison has a key and one of'),
        (
            b'{"if": [{"key": "a", "value": "1", "exists": true}]}',
            "value, revision, create_revision, version, exists",
        ),
        (b'{"if": [{"key": "a", "value": "1", "relation": "~"}]}', "the relation is"),
        (b'{"if": [{"key": "a", "revision": "1"}]}', "needs int"),
        (b'{"if": [{"key": "a", "exists": true, "relation": "<"}]}', "by = or !="),
        (b'{"then": [{"get": "a"}, {}]}', '"then" 2: an operation has one of'),
        (b'{"then": [{"get": "a", "put": "b"}]}', "one of"),
        (b'{"then": [{"put": "a"}]}', "a put has a value"),
        (b'{"then": [{"put": "a", "value": 1}]}', "is text, or"),
        (b'{"then": [{"put": "a", "value": {"base64": "?"}}]}', "no base64"),
        (b'{"then": [{"put": "a", "value": "", "ttl": 5}]}', "did you mean 'ttl_ms'"),
        (b'{"then": [{"increment": "a", "amount": "5"}]}', "is an integer"),
        (b'{"else": [{"delete_range": {}}]}', '"else" 1: a range has'),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: bytes, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        transaction_of(text)
    assert said in str(raised.value)
