"""A session whose ZooKeeper is away, or whose client broke, on a real server."""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ledger.dev import DevCluster
from ledger.errors import MetadataError, MetadataUnavailableError
from ledger.ports import SessionState
from ledger.zookeeper import kazoo_link
from ledger.zookeeper.kazoo_link import KazooLink, WakeUpSocket, WatchedHandler
from ledger.zookeeper.session import CALLS_MAX, WAITING_MAX, ZooKeeperSession, connect

pytestmark = pytest.mark.asyncio
_roots = itertools.count()
CALLS = 1_000
MORE_THAN_THE_PAIR_HOLDS = 5_000


@pytest.fixture
def root() -> str:
    return f"/zk-away-{next(_roots)}"


class Beat:
    """The longest time for which the event loop stood still."""

    def __init__(self) -> None:
        self.gap_s_max = 0.0

    @asynccontextmanager
    async def heard(self) -> AsyncIterator[None]:
        task = asyncio.get_running_loop().create_task(self._beat())
        yield
        task.cancel()

    async def _beat(self) -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(0.01)
            now = time.monotonic()
            self.gap_s_max = max(self.gap_s_max, now - last)
            last = now


async def _until(is_so: Callable[[], bool], limit_s: float = 60.0) -> None:
    async with asyncio.timeout(limit_s):
        while not is_so():
            await asyncio.sleep(0.02)


async def test_the_loop_runs_on_through_a_thousand_calls_while_zookeeper_is_away(
    start_cluster: Callable[..., DevCluster], root: str
) -> None:
    cluster = start_cluster(bookie_count=0)
    store = await connect([cluster.zookeeper], session_timeout_ms=1_000)
    await store.create(root, b"1")
    beat = Beat()
    for harm, mend in (
        (cluster.pause_zookeeper, cluster.resume_zookeeper),
        (cluster.kill_zookeeper, cluster.start_zookeeper),
    ):
        harm()
        async with beat.heard():
            ends = await asyncio.gather(*(store.sync(root) for _ in range(CALLS)), return_exceptions=True)
            assert {type(end) for end in ends} == {MetadataUnavailableError}
            # By now it is known to be away: nothing is sent, and who would wait behind too many is told at once.
            await _until(lambda: store.session_state is SessionState.SUSPENDED)
            many = CALLS_MAX + WAITING_MAX + 100
            found = await asyncio.gather(*(store.get(root) for _ in range(many)), return_exceptions=True)
            ends = [end for end in found if isinstance(end, BaseException)]
            assert len(ends) == many
            assert {type(end) for end in ends} == {MetadataUnavailableError}
            assert "ZooKeeper is away: " in str(ends[0])
        await asyncio.to_thread(mend)
        await _until(lambda: store.session_state is SessionState.CONNECTED)
        assert (await store.get(root)).value == b"1"
    assert beat.gap_s_max < 60  # For ever, when the pair blocks.
    await store.close()


async def test_the_wake_up_pair_never_blocks_however_many_write(zookeeper: str) -> None:
    """What kazoo is built upon here: the handler's pair is the one that its calls write to."""
    store = await connect([zookeeper])
    connection = store._link.client._connection
    assert isinstance(connection._write_sock, WakeUpSocket)
    assert connection._write_sock.gettimeout() == 0
    reader, writer = WatchedHandler(print).create_socket_pair()
    with reader, writer:
        for _ in range(MORE_THAN_THE_PAIR_HOLDS):
            assert writer.send(b"\0") == 1
        reader.settimeout(0)
        assert CALLS_MAX < len(reader.recv(MORE_THAN_THE_PAIR_HOLDS)) < MORE_THAN_THE_PAIR_HOLDS
    await store.close()


@pytest.mark.slow
async def test_calls_of_another_kazoo_that_makes_its_own_pair_do_not_fill_it(
    start_cluster: Callable[..., DevCluster], root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If kazoo stopped asking its handler for the pair: the number of calls alone keeps it from filling."""
    monkeypatch.setattr(WatchedHandler, "create_socket_pair", lambda _: socket.socketpair())
    cluster = start_cluster(bookie_count=0)
    store = await connect([cluster.zookeeper], session_timeout_ms=1_000)
    beat = Beat()
    cluster.kill_zookeeper()
    async with beat.heard():
        for _ in range(2):
            await asyncio.gather(*(store.sync(root) for _ in range(CALLS)), return_exceptions=True)
    await asyncio.to_thread(cluster.start_zookeeper)
    await _until(lambda: store.session_state is SessionState.CONNECTED)
    assert await store.create(root) == root
    assert beat.gap_s_max < 60
    await store.close()


def _break_thread(store: ZooKeeperSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the connection thread meet what kazoo does not know; other clients of the session go on."""

    def broken(*_: Any, **__: Any) -> Any:
        raise ValueError("planted")

    monkeypatch.setattr(store._link.client.handler, "select", broken)


async def test_a_dead_connection_thread_is_followed_by_a_new_session(
    zookeeper: str, root: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = await connect([zookeeper], session_timeout_ms=4_000)
    states: list[SessionState] = []
    store.on_session_state(states.append)
    await store.create(root, b"1")
    ephemeral = await store.create(f"{root}/mine", ephemeral=True)
    fired = asyncio.Event()
    await store.get(root, watch=fired.set)
    before = store.session_id
    for number in range(2):  # The second one after a pause: replacements do not chase each other.
        _break_thread(store, monkeypatch)
        await _until(lambda number=number: states == [SessionState.LOST, SessionState.CONNECTED] * (number + 1))
    assert store.session_id not in (0, before)
    assert fired.is_set()
    assert "ValueError: planted" in caplog.text
    assert (await store.get(root)).value == b"1"
    gone = asyncio.Event()
    if await store.exists(ephemeral, watch=gone.set) is not None:
        async with asyncio.timeout(60):
            await gone.wait()  # With the old session.
    await store.create(ephemeral, ephemeral=True)
    await store.close()


async def test_calls_under_way_hear_at_once_that_the_client_is_gone(
    start_cluster: Callable[..., DevCluster], root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = start_cluster(bookie_count=0)
    store = await connect([cluster.zookeeper], session_timeout_ms=20_000)
    cluster.pause_zookeeper()
    calls = [asyncio.create_task(store.sync(root)) for _ in range(10)]
    await asyncio.sleep(0.2)
    _break_thread(store, monkeypatch)
    ends = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(end, MetadataError) for end in ends)
    assert not [end for end in ends if "gave no reply" in str(end)], "they waited for as long as a reply may take"
    cluster.resume_zookeeper()
    await _until(lambda: store.session_state is SessionState.CONNECTED)
    await store.close()


async def test_a_client_that_stands_still_is_replaced(
    start_cluster: Callable[..., DevCluster], root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = start_cluster(bookie_count=0)
    store = ZooKeeperSession([cluster.zookeeper], asyncio.get_running_loop(), 1_000, stuck_s=2.0)
    await store.start(10)
    release = threading.Event()
    first = store._link.client.handler
    monkeypatch.setattr(first, "create_connection", lambda *_, **__: release.wait(60))
    cluster.kill_zookeeper()
    await asyncio.to_thread(cluster.start_zookeeper)
    try:
        await _until(lambda: store.session_state is SessionState.CONNECTED)
        assert store._link.client.handler is not first
        assert await store.create(root) == root
    finally:
        release.set()
        await store.close()


async def test_a_client_that_cannot_be_made_is_tried_again(
    zookeeper: str, root: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = await connect([zookeeper], session_timeout_ms=4_000)
    attempts = 0

    def start(link: KazooLink, start: Callable[[KazooLink], None] = KazooLink.start) -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise RuntimeError("can't start new thread")
        start(link)

    monkeypatch.setattr(kazoo_link.KazooLink, "start", start)
    _break_thread(store, monkeypatch)
    await _until(lambda: attempts == 2 and store.session_state is SessionState.CONNECTED)
    assert "can't start new thread" in caplog.text
    assert await store.create(root) == root
    await store.close()


async def test_a_session_is_closed_soon_while_zookeeper_is_away(start_cluster: Callable[..., DevCluster]) -> None:
    cluster = start_cluster(bookie_count=0)
    store = await connect([cluster.zookeeper], session_timeout_ms=20_000)
    cluster.pause_zookeeper()
    waiting = asyncio.create_task(store.sync("/"))
    await asyncio.sleep(0.1)
    async with asyncio.timeout(60):
        await store.close()
        with pytest.raises(MetadataError) as told:
            await waiting
        assert "gave no reply" not in str(told.value), "it waited for as long as a reply may take"
        with pytest.raises(MetadataError, match="closed"):
            await store.get("/")
    cluster.resume_zookeeper()
