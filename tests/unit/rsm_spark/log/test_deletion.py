"""A log is deleted, cut off at any write and finished by the next try; another log of its name is not touched."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from ledger.errors import (
    BadVersionError,
    MetadataDeniedError,
    MetadataUnavailableError,
    NodeExistsError,
    NoNodeError,
    NoSuchLedgerError,
)
from ledger.ports import ANY_VERSION, NodeChange, Versioned
from rsm_spark.core.chain import ChainLedger, LogChain, encode_chain
from rsm_spark.core.orphans import custom_metadata
from rsm_spark.errors import ChainConflictError, LogError, NoSuchLogError
from rsm_spark.log.deletion import delete_log
from rsm_spark.log.member import Member, encode_member
from rsm_spark.log.sharing import LedgerUse

_LOG = "/rsm/logs/orders"
_SERVICE = "/rsm/services/orders"


class Nodes:
    """A tree of nodes in a dictionary, which fails at a chosen write, before it is made or after."""

    def __init__(self, fails_at: int = -1) -> None:
        self.nodes: dict[str, Versioned] = {}
        self.denied: set[str] = set()
        self.writes_left = fails_at
        self.is_reply_lost = False
        self.on_write: Any = lambda _path: None

    def _write(self, changes: Sequence[NodeChange]) -> None:
        for one in changes:
            self.on_write(one.path)
        self.writes_left -= 1
        if self.writes_left == -1 and not self.is_reply_lost:
            raise MetadataUnavailableError("the network is cut")
        before = dict(self.nodes)
        try:
            for one in changes:
                self._change(*one)
        except BaseException:
            self.nodes = before
            raise
        if self.writes_left == -1:
            raise MetadataUnavailableError("the network was cut")

    def _change(self, path: str, value: bytes | None, version: int | None) -> None:
        known = self.nodes.get(path)
        if value is not None and version is None:
            if known is not None:
                raise NodeExistsError(path)
            self.nodes[path] = Versioned(value, 0)
            return
        if known is None:
            raise NoNodeError(path)
        if version not in (ANY_VERSION, known.version):
            raise BadVersionError(path)
        if value is not None:
            self.nodes[path] = Versioned(value, known.version + 1)
            return
        if any(one.startswith(f"{path}/") for one in self.nodes):
            raise NodeExistsError(path)
        del self.nodes[path]

    def _read(self, path: str) -> None:
        if path in self.denied:
            raise MetadataDeniedError(path)

    async def get(self, path: str, *, watch: Any = None) -> Versioned:
        if path not in self.nodes:
            raise NoNodeError(path)
        self._read(path)
        return self.nodes[path]

    async def exists(self, path: str, *, watch: Any = None) -> int | None:
        found = self.nodes.get(path)
        return None if found is None else found.version

    async def children(self, path: str, *, watch: Any = None) -> list[str]:
        found = sorted(
            {one.removeprefix(f"{path}/").partition("/")[0] for one in self.nodes if one.startswith(f"{path}/")}
        )
        if not found and path not in self.nodes:
            raise NoNodeError(path)
        self._read(path)
        return found

    async def create(self, path: str, value: bytes = b"", *, parents: bool = False, **_: Any) -> None:
        self._write([NodeChange(path, value, None)])

    async def set(self, path: str, value: bytes, version: int) -> int:
        self._write([NodeChange(path, value, version)])
        return version + 1

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        self._write([NodeChange(path, None, version)])

    async def change(self, changes: Sequence[NodeChange]) -> None:
        self._write(changes)

    async def sync(self, path: str) -> None:
        pass


class Ledgers:
    """What is asked of a ledger client."""

    def __init__(self, store: Nodes, ledger_ids: set[int]) -> None:
        self.store = store
        self.ledger_ids = ledger_ids
        self.custom: dict[int, dict[str, bytes]] = {}
        self.denied: set[int] = set()

    async def list(self) -> Any:
        return sorted(self.ledger_ids)

    async def metadata(self, ledger_id: int) -> Any:
        if ledger_id not in self.ledger_ids:
            raise NoSuchLedgerError(f"ledger {ledger_id}")
        if ledger_id in self.denied:
            raise MetadataDeniedError(f"ledger {ledger_id}")
        return SimpleNamespace(custom=self.custom.get(ledger_id, {}))

    async def delete(self, ledger_id: int) -> None:
        self.store._write(())
        if ledger_id not in self.ledger_ids:
            raise NoSuchLedgerError(f"ledger {ledger_id}")
        self.ledger_ids.remove(ledger_id)


def chain(log_id: str = "ab" * 16, *ledger_ids: int, deleting: tuple[int, ...] = ()) -> bytes:
    ledgers = tuple(ChainLedger(ledger_id, 1, 1, 1) for ledger_id in ledger_ids)
    return encode_chain(LogChain(log_id, ledgers=ledgers, deleting=deleting))


def world(fails_at: int = -1) -> Any:
    store = Nodes()
    store.nodes[_LOG] = Versioned(chain("ab" * 16, 3, 5, deleting=(1,)), 7)
    store.nodes[_SERVICE] = Versioned(b"", 0)
    store.nodes[f"{_SERVICE}/members"] = Versioned(b"", 0)
    store.nodes[f"{_SERVICE}/requests"] = Versioned(b"", 0)
    store.nodes[f"{_SERVICE}/requests/0001"] = Versioned(b"{}", 0)
    store.writes_left = fails_at
    return Ledgers(store, {1, 3, 5, 8})


def test_nothing_of_a_log_is_left_but_other_ledgers() -> None:
    client = world()
    told: list[tuple[int, int]] = []
    (done,) = asyncio.run(delete_log(client, "orders", on_progress=lambda *one: told.append(one)))
    assert (done.log_id, done.ledger_ids, done.was_begun) == ("ab" * 16, [1, 3, 5], False)
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert client.ledger_ids == {8}
    assert set(client.store.nodes) == {"/rsm/deleting"}
    with pytest.raises(NoSuchLogError):
        asyncio.run(delete_log(client, "orders"))


def test_ledgers_that_were_never_chained_go_and_those_of_other_logs_stay() -> None:
    client = world()
    client.ledger_ids |= {9, 11}
    client.custom[9] = custom_metadata("orders", "ab" * 16, 4, 5)
    client.custom[11] = custom_metadata("orders", "cd" * 16, 4, 5)
    (done,) = asyncio.run(delete_log(client, "orders"))
    assert done.ledger_ids == [1, 3, 5, 9]
    assert client.ledger_ids == {8, 11}


def test_a_deletion_cut_off_at_any_write_is_finished_by_the_next() -> None:
    cuts = 0
    while True:
        client = world(fails_at=cuts)
        try:
            asyncio.run(delete_log(client, "orders"))
        except MetadataUnavailableError:
            client.store.writes_left = -1
            done = asyncio.run(delete_log(client, "orders")) if client.store.nodes else []
            assert len(done) <= 1, "one log was deleted as two"
        else:
            break
        assert client.ledger_ids == {8}, f"cut at write {cuts}"
        assert set(client.store.nodes) == {"/rsm/deleting"}, f"cut at write {cuts}"
        cuts += 1
    assert cuts > 7


def test_a_log_that_took_the_name_meanwhile_is_another_one() -> None:
    client = world(fails_at=2)  # The note stands, the name is gone.
    with pytest.raises(MetadataUnavailableError):
        asyncio.run(delete_log(client, "orders"))
    assert _LOG not in client.store.nodes
    client.store.writes_left = -1
    client.store.nodes[_LOG] = Versioned(chain("cd" * 16, 8), 0)
    first, second = asyncio.run(delete_log(client, "orders"))
    assert (first.log_id, first.was_begun, first.ledger_ids) == ("ab" * 16, True, [1, 3, 5])
    assert (second.log_id, second.was_begun, second.ledger_ids) == ("cd" * 16, False, [8])


def test_a_log_with_a_living_replica_stays() -> None:
    client = world()
    member = encode_member(Member(replica_id="a", incarnation="1" * 32, address="h:1"))
    client.store.nodes[f"{_SERVICE}/members/a"] = Versioned(member, 0)
    before = dict(client.store.nodes)
    with pytest.raises(LogError, match="its replica a still runs: stop every replica first; nothing was deleted"):
        asyncio.run(delete_log(client, "orders"))
    assert client.store.nodes == before
    assert client.ledger_ids == {1, 3, 5, 8}


def test_a_log_that_a_starting_replica_claims_meanwhile_stays() -> None:
    client = world()
    state = SimpleNamespace(claimed=False)

    def claim(path: str) -> None:
        if path == _LOG and not state.claimed:
            state.claimed = True
            client.store.nodes[_LOG] = Versioned(chain("ab" * 16, 3, 5, 9), 8)

    client.store.on_write = claim
    with pytest.raises(ChainConflictError, match="nothing was deleted"):
        asyncio.run(delete_log(client, "orders"))
    assert client.ledger_ids == {1, 3, 5, 8}
    assert [path for path in client.store.nodes if "deleting/" in path] == []


def use(log: str, log_id: str, *ledger_ids: int) -> Versioned:
    return Versioned(msgspec.json.encode(LedgerUse(log, log_id, ledger_ids)), 0)


def test_what_strangers_alone_may_read_stays_and_is_told() -> None:
    client = world()
    nodes, strangers = (
        client.store.nodes,
        ("/rsm/logs/theirs", f"/rsm/sharing/{'ee' * 16}", f"/rsm/deleting/{'ee' * 16}"),
    )
    for path in strangers:
        nodes[path] = Versioned(b"", 0)
    nodes[f"/rsm/sharing/{'dd' * 16}/{'ee' * 16}"] = use("orders", "ee" * 16, 8)
    client.store.denied = {*strangers, f"/rsm/sharing/{'dd' * 16}/{'ee' * 16}"}
    client.ledger_ids.add(9)
    client.denied = {9}
    (done,) = asyncio.run(delete_log(client, "orders"))
    assert (done.ledger_ids, done.unread) == ([1, 3, 5], [9])
    assert set(done.unread_notes) == client.store.denied - {strangers[0]}
    assert client.ledger_ids == {8, 9}
    assert set(nodes) == {*client.store.denied, "/rsm/deleting"}


def test_nothing_goes_where_it_cannot_be_seen_who_shares_it() -> None:
    for note in ("", f"/{'cd' * 16}"):
        client = world()
        path = f"/rsm/sharing/{'ab' * 16}{note}"
        client.store.nodes[path] = Versioned(b"", 0)
        client.store.denied = {path}
        with pytest.raises(MetadataDeniedError, match="cannot be looked at, so none of them is deleted"):
            asyncio.run(delete_log(client, "orders"))
        assert client.ledger_ids == {1, 3, 5, 8}


def test_what_a_fork_noted_that_came_to_nothing_goes_with_its_name() -> None:
    client = world()
    nodes = client.store.nodes
    del nodes[_LOG]
    for owner, ledger_id in (("cc" * 16, 3), ("dd" * 16, 5)):
        client.custom[ledger_id] = custom_metadata("origin", owner, 1, -1)
        nodes[f"/rsm/sharing/{owner}"] = Versioned(b'{"ledger_ids": [3, 5]}', 0)
        nodes[f"/rsm/sharing/{owner}/{'ab' * 16}"] = use("orders", "ab" * 16, ledger_id)
    nodes["/rsm/logs/other"] = Versioned(b"of a version to come", 0)
    (done,) = asyncio.run(delete_log(client, "orders"))
    assert (done.log_id, done.ledger_ids, done.was_begun) == ("ab" * 16, [3, 5], True)
    assert set(nodes) == {"/rsm/logs/other"}


def test_a_fork_that_takes_the_name_meanwhile_is_no_stray() -> None:
    client = world()
    nodes = client.store.nodes
    del nodes[_LOG]
    path = f"/rsm/sharing/{'cc' * 16}/{'ab' * 16}"
    nodes[path] = use("orders", "ab" * 16, 3)
    read = client.store.get

    async def get(asked: str, *, watch: Any = None) -> Versioned:
        found: Versioned = await read(asked, watch=watch)
        if asked == path:
            nodes[path] = Versioned(found.value, 1)  # Its log was renamed, and renamed back.
        return found

    client.store.get = get
    with pytest.raises(NoSuchLogError):
        asyncio.run(delete_log(client, "orders"))
    assert client.ledger_ids == {1, 3, 5, 8}
