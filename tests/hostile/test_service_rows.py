"""Attackers at a service's tables that take rows, beside a client that goes on: no right, forged rows, other tables."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Iterator
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

import rsm_spark as rsm
from ledger.dev import DevCluster
from rsm_spark.core.typed_rows import ROWS_MAX, WRITE
from rsm_spark.core.writer_marks import (
    MarkedStatus,
    MarkKind,
    WriterMark,
    decode_marked_reply,
    digest_of,
    encode_mark,
)
from rsm_spark.errors import InvalidCommandError
from rsm_spark.transport.security import Security
from tests.hostile.victim import Victim, Work
from tests.integration.store_processes import StoreProcess, stores
from tests.unit.rsm_spark.core.typed_stock import Good, Stock

pytestmark = pytest.mark.asyncio
_STOCK = ("rsm_spark", "serve", "tests.unit.rsm_spark.core.typed_stock:Stock")
_SECRETS = {name: f"{name}-{'x' * 24}" for name in ("replica", "ann", "eve", "looker")}
_NAMES = ("shop", "number", "title", "amount")
_GOOD_ROW = ("eve", 1, "forged", 1)
_CALLS = 40
_ATTACKERS = 4


class Site(NamedTuple):
    """A replica of the service, and the credentials of its callers."""

    uri: str
    log: str
    store: StoreProcess
    shown: dict[str, Security]

    async def client(self, name: str) -> rsm.ServiceClient:
        return await rsm.ServiceClient.connect(self.log, self.uri, security=self.shown[name], timeout_s=60)


@pytest.fixture
def site(cluster: DevCluster, unique_name: str, tmp_path: Path) -> Iterator[Site]:
    shown = {}
    text = ""
    for name, secret in _SECRETS.items():
        path = tmp_path / f"{name}.token"
        path.write_text(secret)
        path.chmod(0o600)
        shown[name] = Security(token_file=str(path))
        access = "read" if name == "looker" else "write"
        role = 'role = "replica"' if name == "replica" else f'role = "client"\naccess = "{access}"'
        token = hashlib.sha256(secret.encode()).hexdigest()
        text += f'[[principal]]\nname = "{name}"\n{role}\ntokens = ["{token}"]\n'
    principals = tmp_path / "principals.toml"
    principals.write_text(text)
    principals.chmod(0o600)
    options = ("--token-file", str(tmp_path / "replica.token"), "--principals", str(principals))
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        yield Site(cluster.metadata_uri, unique_name, replicas.start("a", *options, command=_STOCK), shown)


def _asked(*rows: Any, table: str = "goods", columns: tuple[str, ...] = _NAMES, **more: Any) -> bytes:
    """Return a command whose first row is in order, so that what is half-written would be seen."""
    first = (*_GOOD_ROW, *[None] * len(columns))[: len(columns)]
    sent = {"table": table, "columns": columns, "rows": [first, *rows], **more}
    return msgspec.msgpack.encode((WRITE, sent))


def _nested(depth: int) -> bytes:
    """Return a command whose one value is arrays in arrays, which no encoder would write."""
    head = msgspec.msgpack.encode((WRITE, {"table": "goods", "columns": ["more"], "rows": [[None]]}))
    assert head.endswith(b"\xc0")
    return head[:-1] + b"\x91" * depth + b"\xc0"


def _forged() -> dict[str, tuple[bytes, str]]:
    """Return commands that are to be refused, and what their refusal says."""
    wrong = {
        "shop": 7, "number": "1", "amount": -1, "price": "much", "code": b"short", "at": 1 << 62, "day": "today",
        "tags": [1], "more": "{", "picture": "text", "weight": "heavy", "is_new": 1,
    }  # fmt: skip
    found = {}
    for name, value in wrong.items():
        columns = _NAMES if name in _NAMES else (*_NAMES, name)
        row = {**dict(zip(_NAMES, _GOOD_ROW, strict=True)), name: value}
        found[f"column {name}"] = (_asked([row[one] for one in columns], columns=columns), name)
    return found | {
        "an unknown table": (_asked(_GOOD_ROW, table="nowhere"), "there is no table 'nowhere'"),
        "a table of the kernel": (_asked(_GOOD_ROW, table="rsm.sessions"), "there is no table"),
        "a name without end": (_asked(_GOOD_ROW, table="x" * 3_000_000), "there is no table"),
        "a table that takes commands alone": (
            _asked(columns=("number",), table="orders", rows=[[1]]),
            "takes no rows as they are",
        ),
        "a column that is none": (_asked(columns=("shop", "number", "owner"), rows=[["a", 1, "b"]]), "no column"),
        "no key": (_asked(columns=("title",), rows=[["x"]]), "of the key is missing"),
        "many columns": (_asked(columns=tuple(map(str, range(100_000))), rows=[]), "no column"),
        "a null key": (_asked((None, 1, "x", 1)), "Expected `str`"),
        "rows of other lengths": (_asked(("eve", 2)), "a row of 2 values"),
        "a row that is none": (_asked(columns=_NAMES, rows=[_GOOD_ROW, {"shop": "eve"}]), "Expected `array`"),
        "too many": (_asked(*[_GOOD_ROW] * ROWS_MAX), "10,000"),
        "a million without values": (_asked(columns=_NAMES, rows=[()] * 1_000_000), "10,000"),
        "too many deleted": (_asked(_GOOD_ROW, deleted=[("eve", 1)] * ROWS_MAX), "10,000"),
        "keys of another form": (_asked(_GOOD_ROW, deleted=[("eve", "1")]), "'number'"),
        "arrays in arrays": (_nested(100_000), ""),
        "an object in objects": (
            b'["?write", {"table": "goods", "columns": ["more"], "rows": [[' + b'{"a":' * 50_000, "",
        ),
        "half a command": (_asked(_GOOD_ROW)[:-3], ""),
        "text that is none": (_asked(_GOOD_ROW).replace(b"forged", b"\xff\xfe\xff\xfe\xff\xfe"), ""),
        "arguments that are none": (msgspec.msgpack.encode((WRITE, [1, 2])), WRITE),
        "more than an entry holds": (
            _asked(*[("eve", n, "x" * 1_000_000, 1) for n in range(2, 7)]),
            "does not fit one entry",
        ),
    }  # fmt: skip


async def _refusal(client: rsm.ServiceClient, command: bytes) -> str:
    """Send a command, and return the one error that it is refused with."""
    try:
        reply = (await client.execute(command)).payload
    except InvalidCommandError as error:
        return str(error)
    if command.startswith(b"["):
        name, fields = msgspec.json.decode(reply, type=tuple[str, dict[str, str]])
    else:
        name, fields = msgspec.msgpack.decode(reply, type=tuple[str, dict[str, str]])
    assert name == InvalidCommandError.__name__
    return fields["message"]


async def test_what_is_forged_is_refused_in_words_and_nothing_of_it_is_written(site: Site) -> None:
    async with await site.client("ann") as ann, await site.client("eve") as eve:
        mine = Good("ann", 1, "tea", amount=5, day=date(2026, 11, 27))
        wrote = _asked(columns=(*_NAMES, "day"), rows=[["ann", 1, "tea", 5, 20_784]])
        assert msgspec.msgpack.decode((await ann.execute(wrote)).payload) == [1]
        for what, (command, said) in _forged().items():
            told = await _refusal(eve, command)
            assert said in told, what
            assert 0 < len(told) < 1_000, what
            assert await ann.call(Stock.kept) == [mine], what
        # In a writer's batch: declined, the writer has not begun, and another's batch is not taken for it.
        payload = _asked(("eve", 2, "x", -1))
        mark = WriterMark("eve", MarkKind.WHOLE, "c", "r", 1, digest=digest_of(payload), row_count=2, payload=payload)
        declined = decode_marked_reply((await eve.execute(encode_mark(mark))).payload)
        while declined.status is MarkedStatus.WAITING:  # The log's format level is raised for the first writer.
            declined = decode_marked_reply((await eve.execute(encode_mark(mark))).payload)
        assert declined.status is MarkedStatus.DECLINED
        assert await ann.call(Stock.kept) == [mine]


async def test_who_may_not_write_writes_no_rows_by_any_way(site: Site) -> None:
    async with await site.client("ann") as ann, await site.client("looker") as looker:
        rows = _asked()
        mark = WriterMark("looker", MarkKind.WHOLE, "c", "r", 1, digest=digest_of(rows), row_count=1, payload=rows)
        before = (await ann.query(msgspec.msgpack.encode(("?tables", {})))).revision
        for command in (rows, encode_mark(mark), rsm.encode_call(Stock.take, "ann", 1)):
            with pytest.raises(InvalidCommandError, match="looker.* reads only"):
                await looker.execute(command)
        asked = msgspec.msgpack.decode((await looker.query(rows)).payload)
        assert (asked[0], "no query '?write'" in asked[1]["message"]) == ("InvalidCommandError", True)
        assert await looker.call(Stock.kept) == []
        assert (await ann.query(msgspec.msgpack.encode(("?tables", {})))).revision == before, "nothing was logged"


async def test_a_victim_writes_on_beside_forged_rows(site: Site) -> None:
    forged = [command for command, _ in _forged().values()]
    written = 0

    async with await site.client("ann") as ann:

        async def write() -> None:
            nonlocal written
            written += 1
            reply = await ann.execute(_asked(columns=_NAMES, rows=[["ann", written, "tea", 3]]))
            assert msgspec.msgpack.decode(reply.payload) == [1]
            assert await ann.call(Stock.take, "ann", written) == 2

        victim, work = Victim(write, servers=[site.store.process.pid]), Work()
        quiet = await victim.run(_CALLS)
        async with _attack(site, forged, work):
            await work.reaches(len(forged))
            attacked = await victim.run(_CALLS, beside=work, units=2 * len(forged))
        kept = await ann.call(Stock.kept)
        assert kept == [Good("ann", number, "tea", amount=2) for number in range(1, written + 1)]
    attacked.assert_goes_on_like(quiet, units_per_call=5 * _ATTACKERS)  # A call has two commands.


@contextlib.asynccontextmanager
async def _attack(site: Site, forged: list[bytes], work: Work) -> AsyncIterator[None]:
    """Send forged rows by several clients, as fast as they are refused."""

    async def go_on(first: int) -> None:
        async with await site.client("eve") as eve:
            number = first
            while not work.is_over:
                await _refusal(eve, forged[number % len(forged)])
                work.add()
                number += 1

    attackers = [asyncio.create_task(go_on(first * len(forged) // _ATTACKERS)) for first in range(_ATTACKERS)]
    for one in attackers:
        work.ends_with(one)
    try:
        yield
    finally:
        work.end()
        await asyncio.gather(*attackers)
