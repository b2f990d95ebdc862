"""The ZooKeeper bridge on a real server."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from ledger.core.metadata import DigestType, LedgerMetadata, LedgerState, Segment
from ledger.core.quorum import QuorumConfig
from ledger.errors import (
    BadVersionError,
    MetadataError,
    MetadataUnavailableError,
    NodeExistsError,
    NoNodeError,
    NoSuchLedgerError,
)
from ledger.ports import SessionState
from ledger.zookeeper.ledgers import LedgerStore
from ledger.zookeeper.registration import BookieRegistration
from ledger.zookeeper.session import ZooKeeperSession, connect

pytestmark = pytest.mark.asyncio
_roots = itertools.count()


@pytest.fixture
def root() -> str:
    return f"/zk-session-{next(_roots)}"


async def _connect(zookeeper: str) -> ZooKeeperSession:
    return await connect([zookeeper], session_timeout_ms=4_000)


async def test_values_are_written_by_compare_and_set(zookeeper: str, root: str) -> None:
    store = await _connect(zookeeper)
    assert await store.create(f"{root}/a/b", b"one", parents=True) == f"{root}/a/b"
    assert await store.get(f"{root}/a/b") == (b"one", 0)
    assert await store.set(f"{root}/a/b", b"two", 0) == 1
    with pytest.raises(BadVersionError):
        await store.set(f"{root}/a/b", b"three", 0)
    with pytest.raises(NodeExistsError):
        await store.create(f"{root}/a/b")
    with pytest.raises(NodeExistsError):
        await store.delete(f"{root}/a")
    with pytest.raises(NoNodeError):
        await store.create(f"{root}/x/y")
    with pytest.raises(NoNodeError):
        await store.get(f"{root}/none")
    assert await store.exists(f"{root}/none") is None
    assert await store.children(f"{root}/a") == ["b"]
    await store.close()


async def test_a_watch_fires_once_on_the_loop(zookeeper: str, root: str) -> None:
    one, two = await _connect(zookeeper), await _connect(zookeeper)
    await one.create(root)
    fired: list[str] = []
    seen = asyncio.Event()

    def watch() -> None:
        fired.append("data")
        seen.set()

    await one.get(root, watch=watch)
    await two.set(root, b"1", 0)
    async with asyncio.timeout(60):
        await seen.wait()
    await two.set(root, b"2", 1)
    await one.sync(root)
    assert (await one.get(root)).value == b"2"
    assert fired == ["data"]
    await one.close()
    await two.close()


async def test_ephemeral_nodes_go_with_the_session(zookeeper: str, root: str) -> None:
    one, two = await _connect(zookeeper), await _connect(zookeeper)
    gone = asyncio.Event()
    path = await one.create(f"{root}/n-", ephemeral=True, sequential=True, parents=True)
    assert path == f"{root}/n-0000000000"
    await two.sync(root)
    assert await two.exists(path, watch=gone.set) == 0
    await one.close()
    async with asyncio.timeout(60):
        await gone.wait()
    assert await two.exists(path) is None
    assert two.session_state is SessionState.CONNECTED
    await two.close()


async def test_a_server_that_does_not_answer_is_named() -> None:
    with pytest.raises(MetadataUnavailableError, match=r"127\.0\.0\.1:1 for 1 s"):
        await connect(["127.0.0.1:1"], connect_timeout_s=1)


async def test_ledgers_are_kept_in_the_hierarchical_layout(zookeeper: str, root: str) -> None:
    store = await _connect(zookeeper)
    ledgers = LedgerStore(store, root)
    assert await ledgers.ensure_layout("one") == "one"
    assert await ledgers.ensure_layout("two") == "one"
    metadata = LedgerMetadata(
        QuorumConfig(3, 3, 2), LedgerState.OPEN, (Segment(0, ("a:1", "b:1", "c:1")),), DigestType.CRC32C, b"secret"
    )
    first, second = await ledgers.new_ledger_id(), await ledgers.new_ledger_id()
    assert second == first + 1
    version = await ledgers.create(first, metadata)
    assert await ledgers.read(first, sync=True) == (metadata, version)
    assert await store.exists(f"{root}/00/0000/L0000") == 0
    assert await ledgers.write(first, metadata, version) == 1
    with pytest.raises(BadVersionError):
        await ledgers.write(first, metadata, version)
    await ledgers.create(second, metadata)
    assert await ledgers.list() == [first, second]
    await ledgers.delete(first, 1)
    assert await ledgers.list() == [second]
    with pytest.raises(NoSuchLedgerError):
        await ledgers.read(first)
    await store.close()


async def test_a_bookie_waits_for_its_former_registration_to_vanish(zookeeper: str, root: str) -> None:
    one, two = await _connect(zookeeper), await _connect(zookeeper)
    ledgers = LedgerStore(two, root)
    await ledgers.ensure_layout("id")
    old = BookieRegistration(one, root, "127.0.0.1:3181", host="127.0.0.1", port=3181)
    await old.register()
    new = BookieRegistration(two, root, "127.0.0.1:3181", host="127.0.0.1", port=3181)
    registering = asyncio.create_task(new.register())
    await two.sync(root)
    assert not registering.done()
    await old.unregister()
    async with asyncio.timeout(60):
        await registering
    assert await ledgers.writable_bookies() == ["127.0.0.1:3181"]
    assert await ledgers.bookie_address("127.0.0.1:3181") == ("127.0.0.1", 3181)
    await new.set_read_only(True)
    assert await ledgers.writable_bookies() == []
    assert await ledgers.read_only_bookies() == ["127.0.0.1:3181"]
    await new.unregister()
    await one.close()
    await two.close()


async def test_the_server_bounds_the_session_time_out_that_is_granted(zookeeper: str) -> None:
    store = await connect([zookeeper], session_timeout_ms=1_000_000)
    assert 1_000 <= store.granted_timeout_ms <= 60_000  # twenty ticks
    await store.close()
    store = await connect([zookeeper], session_timeout_ms=4_000)
    assert store.granted_timeout_ms == 4_000
    await store.close()


async def test_nodes_made_with_a_log_in_are_the_creators_alone(zookeeper: str, root: str) -> None:
    owner = await connect([zookeeper], auth=("digest", "owner:secret"))
    again = await connect([zookeeper], auth=("digest", "owner:secret"))
    stranger = await _connect(zookeeper)
    await owner.create(f"{root}/a/b", b"1", parents=True)
    with pytest.raises(MetadataError, match=r"does not let us get .*RSM_ZK_AUTH_FILE"):
        await stranger.get(f"{root}/a/b")
    with pytest.raises(MetadataError, match="does not let us create"):
        await stranger.create(f"{root}/a/c")
    assert await again.set(f"{root}/a/b", b"2", 0) == 1
    for session in (owner, again, stranger):
        await session.close()


async def test_an_open_cluster_stays_open_for_a_client_with_a_log_in(zookeeper: str, root: str) -> None:
    stranger = await _connect(zookeeper)
    await LedgerStore(stranger, root).ensure_layout("id")
    owner = await connect([zookeeper], auth=("digest", "owner:secret"))
    await owner.create(f"{root}/00/0000/L0000", b"1", parents=True)
    assert (await stranger.get(f"{root}/00/0000/L0000")).value == b"1"
    await owner.close()
    await stranger.close()
