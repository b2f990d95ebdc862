"""Replies that tell in a few bytes what many statements did: what comes back, who gets them, and what is refused."""

from __future__ import annotations

import random
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rsm_spark.core.records import REPLY_BYTES_MAX
from rsm_spark.sql.brief_results import BriefResult, pack, unpack
from rsm_spark.sql.messages import (
    SqlFault,
    SqlReply,
    SqlResult,
    SqlStatement,
    SqlTransaction,
    decode_reply,
    encode,
    encode_results,
)
from tests.unit.rsm_spark.sql.sql_pair import SqlPair, contents

MANY = 5_000
EDGES = (-(1 << 63), (1 << 63) - 1, 0, -1, 1)


@pytest.fixture
def pair(tmp_path: Path):
    pair = SqlPair(tmp_path)
    yield pair
    pair.close()


def inserts(ids: Any, **wanted: Any) -> bytes:
    statements = tuple(SqlStatement("INSERT INTO t (id) VALUES (?)", (one,)) for one in ids)
    return encode(SqlTransaction(statements, **wanted))


def test_what_was_packed_comes_back():
    rng = random.Random(5)
    for size in range(60):
        drawn: list[BriefResult | None] = []
        for _ in range(size):
            row_id = rng.choice((None, rng.choice(EDGES), rng.randrange(-(1 << 63), 1 << 63)))
            drawn.append(rng.choice((None, BriefResult(rng.choice((0, 1, 20_000)), row_id))))
        assert unpack(pack(drawn)) == drawn


@pytest.mark.parametrize("ids", [[n] * 2 for n in EDGES] + [list(EDGES)])
def test_replies_are_expanded_with_rows_in_their_places(ids):
    returned = SqlResult((("id", "INTEGER"),), ((7,), (8,)), 2, 8)
    plain = [SqlResult((), (), 1, one) for one in ids]
    results = [returned, *plain, returned, SqlResult(), SqlResult((("a", ""),))]
    statements = (SqlStatement("x"),) * len(results)
    whole = encode_results(results, SqlTransaction(statements, is_brief=True))
    assert decode_reply(whole) == SqlReply(tuple(results))
    results[-1:] = plain[-1:]
    few = decode_reply(encode_results(results, SqlTransaction(statements, is_brief=True, wants_row_ids=False))).results
    assert [one.last_rowid for one in few] == [8, *[None] * len(ids), 8, None, ids[-1]]
    assert [msgspec.structs.replace(one, last_rowid=None) for one in few] == [
        msgspec.structs.replace(one, last_rowid=None) for one in results
    ]


def test_replies_and_commands_of_before_are_read_and_older_readers_read_these():
    class OldTransaction(msgspec.Struct, frozen=True, array_like=True):
        statements: tuple[SqlStatement, ...]

    class OldReply(msgspec.Struct, frozen=True, array_like=True):
        results: tuple[SqlResult, ...] = ()
        fault: SqlFault | None = None

    results = (SqlResult((), (), 1, 4), SqlResult((), (), 1, 5))
    statements = (SqlStatement("x"),)
    assert decode_reply(encode(OldReply(results))) == SqlReply(results)
    assert decode_reply(encode(OldReply((), SqlFault("sql", "y")))) == SqlReply((), SqlFault("sql", "y"))
    asked = msgspec.msgpack.decode(encode(OldTransaction(statements)), type=SqlTransaction)
    assert (asked.statements, asked.is_brief) == (statements, False)
    brief = encode(SqlTransaction(statements, is_brief=True, wants_row_ids=False))
    assert msgspec.msgpack.decode(brief, type=OldTransaction) == OldTransaction(statements)
    told = encode_results(results, asked)
    assert msgspec.msgpack.decode(told, type=OldReply) == OldReply(results)


@pytest.mark.parametrize(
    "packed",
    [
        b"x",
        zlib.compress(b"\xc1"),
        zlib.compress(msgspec.msgpack.encode(([False], [1], [1])))[:-3],
        zlib.compress(bytes(1 << 24)),
        zlib.compress(msgspec.msgpack.encode(([False] * 3, [1], [1]))),
        zlib.compress(msgspec.msgpack.encode(([False], [1], []))),
        zlib.compress(msgspec.msgpack.encode(([True], [], []))),
    ],
)
def test_damaged_replies_are_refused(packed):
    with pytest.raises(ValueError, match=r"packed|MessagePack"):
        decode_reply(encode(SqlReply((), None, packed)))


def test_thousands_of_statements_are_one_transaction(pair):
    pair.do("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    pair.do("CREATE TABLE other (id INTEGER PRIMARY KEY)")
    (reply,) = pair.run(inserts([None] * MANY, is_brief=True))
    assert reply.fault is None
    assert [(one.row_count, one.last_rowid) for one in reply.results] == [(1, n + 1) for n in range(MANY)]
    turns = ("INSERT INTO other DEFAULT VALUES", "INSERT INTO t DEFAULT VALUES")
    mixed = [SqlStatement(turns[n % 2]) for n in range(MANY)]
    mixed[100] = SqlStatement("SELECT 1")
    (reply,) = pair.run(encode(SqlTransaction(tuple(mixed), is_brief=True)))
    assert reply.results[100] == SqlResult((("1", ""),), ((1,),))
    assert [one.last_rowid for one in reply.results[1::2]] == list(range(MANY + 1, MANY + MANY // 2 + 1))
    others = [one.last_rowid for place, one in enumerate(reply.results) if place % 2 == 0 and place != 100]
    assert others == list(range(1, MANY // 2))


def test_ids_that_do_not_follow_each_other_are_left_out_on_demand(pair):
    pair.do("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    rng = random.Random(7)
    ids = [rng.randrange(1 << 62) for _ in range(MANY)]
    refused, done = pair.run(
        inserts(ids, is_brief=True), inserts(ids, is_brief=True, wants_row_ids=False)
    )  # In one entry: the first has left nothing, else the ids of the second were there already.
    assert (refused.results, refused.fault.kind) == ((), "limit")
    assert f"at most {REPLY_BYTES_MAX}" in refused.fault.text
    assert "row ids" in refused.fault.text
    assert done.fault is None
    assert {one.row_count for one in done.results} == {1}
    assert [one.last_rowid for one in done.results] == [None] * (MANY - 1) + [ids[-1]]


def test_who_does_not_ask_is_refused_as_before(pair):
    pair.do("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    (reply,) = pair.run(inserts([None] * MANY))
    assert (reply.results, reply.fault.kind) == ((), "limit")
    assert contents(pair.follower.path)["t"] == []
