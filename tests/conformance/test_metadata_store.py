"""What every metadata store promises, asked of ZooKeeper and of its simulated twin alike."""

# Longer than 400 lines: all promises of one interface, each in a few lines.

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from ledger.errors import (
    BadVersionError,
    MetadataError,
    MetadataSessionLostError,
    NodeExistsError,
    NoNodeError,
)
from ledger.ports import ANY_VERSION, MetadataStore, NodeChange, SessionState

Connect = Callable[[], Awaitable[MetadataStore]]
Run = Callable[[Callable[[Connect, str], Coroutine[Any, Any, None]]], None]


class Watch:
    """Counts its calls."""

    def __init__(self) -> None:
        self.count = 0
        self._fired = asyncio.Event()

    def __call__(self) -> None:
        self.count += 1
        self._fired.set()

    async def fired(self) -> None:
        await self._fired.wait()
        self._fired.clear()


async def _settled(*stores: MetadataStore) -> None:
    """Wait until watches that are due have been delivered, as far as one can know."""
    for store in stores:
        await store.sync("/")
    await asyncio.sleep(0.2)


# --- values and versions


def test_a_node_is_created_once_and_read_back(run: Run) -> None:
    async def test(connect: Connect, root: str) -> None:
        store = await connect()
        assert await store.create(f"{root}/a", b"one") == f"{root}/a"
        assert await store.get(f"{root}/a") == (b"one", 0)
        assert await store.exists(f"{root}/a") == 0
        with pytest.raises(NodeExistsError):
            await store.create(f"{root}/a", b"two")
        assert await store.get(f"{root}/a") == (b"one", 0)

    run(test)


def test_a_missing_node_is_told_apart_from_an_empty_one(run: Run) -> None:
    async def test(connect: Connect, root: str) -> None:
        store = await connect()
        await store.create(f"{root}/empty")
        assert await store.get(f"{root}/empty") == (b"", 0)
        assert await store.children(f"{root}/empty") == []
        assert await store.exists(f"{root}/none") is None
        for call in (
            store.get(f"{root}/none"),
            store.children(f"{root}/none"),
            store.set(f"{root}/none", b"", ANY_VERSION),
            store.delete(f"{root}/none"),
            store.create(f"{root}/none/below"),
        ):
            with pytest.raises(NoNodeError):
                await call

    run(test)


def test_a_write_names_the_version_that_it_replaces(run: Run) -> None:
    async def test(connect: Connect, root: str) -> None:
        store = await connect()
        path = await store.create(f"{root}/a", b"0")
        assert await store.set(path, b"1", 0) == 1
        with pytest.raises(BadVersionError):
            await store.set(path, b"2", 0)
        with pytest.raises(BadVersionError):
            await store.set(path, b"2", 2)
        assert await store.get(path) == (b"1", 1)
        assert await store.set(path, b"2", ANY_VERSION) == 2

    run(test)


def test_the_time_of_a_nodes_last_write_is_told_by_the_servers(run: Run) -> None:
    async def test(connect: Connect, root: str) -> None:
        store = await connect()
        await store.create(f"{root}/a", b"one")
        created_ms = await store.modified_ms(f"{root}/a")
        await asyncio.sleep(0.01)
        await store.set(f"{root}/a", b"two", 0)
        written_ms = await store.modified_ms(f"{root}/a")
        assert 1_600_000_000_000 < created_ms < written_ms < created_ms + 3_600_000
        with pytest.raises(NoNodeError):
            await store.modified_ms(f"{root}/b")

    run(test)


def test_several_changes_are_made_at_once_or_not_at_all(run: Run) -> None:
    async def test(connect: Connect, root: str) -> None:
        store, other = await connect(), await connect()
        path, gone, new = f"{root}/a", f"{root}/b", f"{root}/c"
        await store.create(path, b"0")
        await store.create(gone)
        watch = Watch()
        await other.sync(path)
        await other.exists(new, watch=watch)
        good = [NodeChange(path, b"1", 0), NodeChange(gone), NodeChange(new, b"2", None)]
        for bad, error in (
            (NodeChange(path, b"3", 0), BadVersionError),
            (NodeChange(gone, b"", 0), NoNodeError),
            (NodeChange(new, b"", None), NodeExistsError),
            (NodeChange(f"{root}/none/below", b"", None), NoNodeError),
            (NodeChange(path, None, 0), BadVersionError),
        ):
            with pytest.raises(error):
                await store.change([*good, bad])
        assert await store.get(path) == (b"0", 0)
        assert await store.children(root) == ["a", "b"]
        # One asserts that there is no such node.
        absent = [NodeChange(f"{root}/d", b"", None), NodeChange(f"{root}/d")]
        await store.change([*absent, *good])
        assert await store.get(path) == (b"1", 1)
        assert await store.children(root) == ["a", "c"]
        await watch.fired()

    run(test)


def test_one_of_two_writers_with_the_same_version_wins(run: Run) -> None:
    async def test(connect: Connect, root: str) -> None:
        one, two = await connect(), await connect()
        path = await one.create(f"{root}/a")
        outcomes = await asyncio.gather(one.set(path, b"1", 0), two.set(path, b"2", 0), return_exceptions=True)
        assert sorted(type(outcome) is BadVersionError for outcome in outcomes) == [False, True]
        await one.sync(path)
        assert (await one.get(path)).value == (b"1" if outcomes[0] == 1 else b"2")

    run(test)


def test_a_node_with_children_or_another_version_is_not_deleted(run: Run) -> None:
    async def test(connect: Connect, root: str) -> None:
        store = await connect()
        await store.create(f"{root}/a/b/c", b"", parents=True)
        with pytest.raises(NodeExistsError):
            await store.delete(f"{root}/a/b")
        with pytest.raises(BadVersionError):
            await store.delete(f"{root}/a/b/c", 1)
        await store.delete(f"{root}/a/b/c", 0)
        await store.delete(f"{root}/a/b")
        assert await store.children(f"{root}/a") == []
        assert await store.create(f"{root}/a/b", b"again") == f"{root}/a/b"
        assert await store.get(f"{root}/a/b") == (b"again", 0)

    run(test)


def test_children_are_listed_by_name_in_order(run: Run) -> None:
    async def test(connect: Connect, root: str) -> None:
        store = await connect()
        for name in ("c", "a", "b"):
            await store.create(f"{root}/{name}")
        await store.create(f"{root}/a/deeper")
        assert await store.children(root) == ["a", "b", "c"]

    run(test)


# --- sequential nodes


def test_sequential_nodes_count_all_that_was_ever_created_below_their_parent(run: Run) -> None:
    async def test(connect: Connect, root: str) -> None:
        store = await connect()
        parent = await store.create(f"{root}/p")
        assert await store.create(f"{parent}/x-", sequential=True) == f"{parent}/x-0000000000"
        await store.create(f"{parent}/plain")
        second = await store.create(f"{parent}/y-", sequential=True)
        assert second == f"{parent}/y-0000000002"
        await store.delete(second)
        await store.delete(f"{parent}/plain")
        assert await store.create(f"{parent}/x-", sequential=True) == f"{parent}/x-0000000003"
        other = await store.create(f"{root}/q")
        assert await store.create(f"{other}/x-", sequential=True) == f"{other}/x-0000000000"

    run(test)


def test_sequential_nodes_of_two_sessions_never_share_a_number(run: Run) -> None:
    async def test(connect: Connect, root: str) -> None:
        stores = [await connect(), await connect()]
        calls = [store.create(f"{root}/n-", sequential=True, ephemeral=True) for store in stores for _ in range(10)]
        created = await asyncio.gather(*calls)
        assert sorted(created) == [f"{root}/n-{number:010d}" for number in range(20)]

    run(test)


# --- ephemeral nodes


def test_ephemeral_nodes_go_when_their_session_is_closed(run: Run) -> None:
    async def test(connect: Connect, root: str) -> None:
        one, two = await connect(), await connect()
        await one.create(f"{root}/e", ephemeral=True)
        await one.create(f"{root}/stays")
        await two.sync(root)
        gone = Watch()
        assert await two.exists(f"{root}/e", watch=gone) == 0
        await one.close()
        await gone.fired()
        assert await two.children(root) == ["stays"]

    run(test)


def test_an_ephemeral_node_has_no_children(run: Run) -> None:
    async def test(connect: Connect, root: str) -> None:
        store = await connect()
        await store.create(f"{root}/e", ephemeral=True)
        with pytest.raises(MetadataError):
            await store.create(f"{root}/e/child")

    run(test)


def test_only_the_last_of_parents_made_on_the_way_is_ephemeral(run: Run) -> None:
    async def test(connect: Connect, root: str) -> None:
        one, two = await connect(), await connect()
        await one.create(f"{root}/a/b/e", ephemeral=True, parents=True)
        await one.close()
        await two.sync(root)
        assert await two.children(f"{root}/a/b") == []

    run(test)


# --- watches


@pytest.mark.parametrize("change", ["set", "delete"])
def test_a_watch_on_a_value_fires_once(run: Run, change: str) -> None:
    async def test(connect: Connect, root: str) -> None:
        one, two = await connect(), await connect()
        path = await one.create(f"{root}/a")
        watch = Watch()
        await one.get(path, watch=watch)
        if change == "set":
            await two.set(path, b"1", 0)
            await watch.fired()
            await two.set(path, b"2", 1)
        else:
            await two.delete(path)
            await watch.fired()
            await two.create(path)
        await _settled(one, two)
        assert watch.count == 1

    run(test)


def test_a_watch_on_existence_sees_creation_and_every_later_change_by_a_new_watch(run: Run) -> None:
    async def test(connect: Connect, root: str) -> None:
        one, two = await connect(), await connect()
        path, watch = f"{root}/a", Watch()
        assert await one.exists(path, watch=watch) is None
        await two.create(path)
        await watch.fired()
        await one.sync(path)
        assert await one.exists(path, watch=watch) == 0
        await two.set(path, b"1", 0)
        await watch.fired()
        await one.sync(path)
        assert await one.exists(path, watch=watch) == 1
        await two.delete(path)
        await watch.fired()
        assert watch.count == 3

    run(test)


def test_a_watch_on_children_sees_them_come_and_go_but_not_change(run: Run) -> None:
    async def test(connect: Connect, root: str) -> None:
        one, two = await connect(), await connect()
        await two.create(f"{root}/p/old", parents=True)
        await one.sync(root)
        watch = Watch()
        assert await one.children(f"{root}/p", watch=watch) == ["old"]
        await two.set(f"{root}/p/old", b"1", 0)
        await two.create(f"{root}/p/old/grandchild")
        await _settled(one)
        assert watch.count == 0
        await two.create(f"{root}/p/new")
        await watch.fired()
        await one.sync(root)
        assert await one.children(f"{root}/p", watch=watch) == ["new", "old"]
        await two.delete(f"{root}/p/new")
        await watch.fired()
        assert watch.count == 2

    run(test)


def test_a_failed_read_leaves_no_watch(run: Run) -> None:
    async def test(connect: Connect, root: str) -> None:
        store = await connect()
        watch = Watch()
        with pytest.raises(NoNodeError):
            await store.get(f"{root}/a", watch=watch)
        with pytest.raises(NoNodeError):
            await store.children(f"{root}/a", watch=watch)
        await store.create(f"{root}/a/b", parents=True)
        await _settled(store)
        assert watch.count == 0

    run(test)


def test_the_own_writes_of_a_session_fire_its_watches_too(run: Run) -> None:
    async def test(connect: Connect, root: str) -> None:
        store = await connect()
        watches = [Watch(), Watch()]
        for watch in watches:
            await store.exists(f"{root}/a", watch=watch)
        await store.create(f"{root}/a")
        for watch in watches:
            await watch.fired()
        assert [watch.count for watch in watches] == [1, 1]

    run(test)


# --- sessions


def test_a_session_reads_its_own_writes_without_sync(run: Run) -> None:
    async def test(connect: Connect, root: str) -> None:
        store = await connect()
        for number in range(20):
            path = await store.create(f"{root}/{number}")
            assert await store.exists(path) == 0
            assert await store.set(path, b"x", 0) == 1
            assert await store.get(path) == (b"x", 1)

    run(test)


def test_another_session_sees_acknowledged_writes_after_sync(run: Run) -> None:
    async def test(connect: Connect, root: str) -> None:
        one, two = await connect(), await connect()
        for number in range(20):
            await one.create(f"{root}/{number}")
            await two.sync(root)
            assert await two.exists(f"{root}/{number}") == 0

    run(test)


def test_a_session_never_sees_time_go_back(run: Run) -> None:
    async def test(connect: Connect, root: str) -> None:
        one, two = await connect(), await connect()
        path = await one.create(f"{root}/a")
        await two.sync(path)

        async def write() -> None:
            for version in range(30):
                await one.set(path, b"", version)

        writing = asyncio.get_running_loop().create_task(write())
        seen = 0
        while not writing.done():
            version = (await two.get(path)).version
            assert version >= seen
            seen = version
        await writing

    run(test)


def test_a_connected_session_says_so_and_has_an_id_of_its_own(run: Run) -> None:
    async def test(connect: Connect, root: str) -> None:
        one, two = await connect(), await connect()
        assert one.session_state is two.session_state is SessionState.CONNECTED
        assert one.session_id != two.session_id
        assert 0 not in (one.session_id, two.session_id)

    run(test)


def test_a_closed_session_answers_nothing_more(run: Run) -> None:
    async def test(connect: Connect, root: str) -> None:
        store = await connect()
        await store.close()
        with pytest.raises(MetadataSessionLostError):
            await store.get(root)
        await store.close()

    run(test)


def test_requests_of_one_session_take_effect_in_their_order(run: Run) -> None:
    async def test(connect: Connect, root: str) -> None:
        store = await connect()
        path = await store.create(f"{root}/a")
        loop = asyncio.get_running_loop()
        calls = [loop.create_task(store.set(path, b"%d" % number, number)) for number in range(50)]
        assert await asyncio.gather(*calls) == list(range(1, 51))

    run(test)
