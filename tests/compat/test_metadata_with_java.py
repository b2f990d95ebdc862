"""Apache BookKeeper's and our view of one cluster's metadata: ids, layouts, formats, registrations."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from ledger.wire import paths
from ledger.zookeeper.ledgers import LedgerStore
from ledger.zookeeper.registration import read_cookie
from ledger.zookeeper.session import connect
from tests.compat.bookies import Bookies
from tests.compat.java_client import JavaClient, run_shell

pytestmark = pytest.mark.compat

_LONG_LAYOUT = b"2\norg.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory:1"


@pytest.fixture(scope="module")
def cluster(java_bookkeeper: Callable[..., Bookies]) -> Bookies:
    return java_bookkeeper("java", "ours", "ours")


def _on_metadata(bookies: Bookies, work: Callable[[LedgerStore], Awaitable[None]]) -> None:
    async def run() -> None:
        session = await connect([bookies.zookeeper])
        try:
            await work(LedgerStore(session, bookies.root))
        finally:
            await session.close()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_both_draw_ids_from_the_same_generators_and_none_twice(java_client: JavaClient, cluster: Bookies) -> None:
    def java() -> int:
        return int(java_client.call("create", uri=cluster.uri)["ledger"])

    async def work(ledgers: LedgerStore) -> None:
        first = [await ledgers.new_ledger_id(), java(), await ledgers.new_ledger_id(), java()]
        assert first == [0, 1, 2, 3]

    _on_metadata(cluster, work)


def test_java_goes_on_with_the_long_ids_that_we_began(
    java_client: JavaClient, java_bookkeeper: Callable[..., Bookies]
) -> None:
    cluster = java_bookkeeper("ours", "ours", "ours")

    async def work(ledgers: LedgerStore) -> None:
        await ledgers.store.create(paths.long_id_generator_path(ledgers.root))
        assert await ledgers.new_ledger_id() == 1 << 32
        assert java_client.call("create", uri=cluster.uri)["ledger"] == (1 << 32) + 1
        assert await ledgers.new_ledger_id() == (1 << 32) + 2
        java_client.call("append", uri=cluster.uri, ledger=(1 << 32) + 1, n=10)
        metadata, _ = await ledgers.read((1 << 32) + 1, sync=True)
        assert metadata.format_version == 3

    _on_metadata(cluster, work)


def test_java_reads_and_changes_metadata_of_every_format_that_we_wrote(
    java_client: JavaClient, cluster: Bookies
) -> None:
    """We put a ledger into an older format; Java closes it and keeps the format; we read the end.

    Format 1 names no ack quorum: it is the write quorum, so all of these have one of three.
    """

    async def work(ledgers: LedgerStore) -> None:
        for version in (1, 2, 3):
            common = {"uri": cluster.uri, "digest": "CRC32", "password": ""}
            ledger_id = int(java_client.call("create", ack_quorum=3, **common)["ledger"])
            java_client.call("append", uri=cluster.uri, ledger=ledger_id, n=10)
            metadata, node_version = await ledgers.read(ledger_id, sync=True)
            older = msgspec.structs.replace(metadata, format_version=version, token=0)
            await ledgers.write(ledger_id, older, node_version)
            seen = java_client.call("read", recover=True, ledger=ledger_id, **common)
            assert (seen["count"], seen["bad"], seen["closed"]) == (10, 0, True)
            closed, _ = await ledgers.read(ledger_id, sync=True)
            assert (closed.format_version, closed.last_entry_id, closed.length) == (version, 9, 1000)
            assert java_client.call("metadata", ledger=ledger_id, **common)["format"] == version

    _on_metadata(cluster, work)


def test_in_the_long_layout_java_and_we_find_each_others_ledgers(
    java_client: JavaClient, zookeeper: str, tmp_path: Path, java_jars: Path
) -> None:
    bookies = Bookies(zookeeper, "/compat-long/ledgers", tmp_path, java_jars)

    async def lay_out(ledgers: LedgerStore) -> None:
        await ledgers.store.set(paths.layout_path(ledgers.root), _LONG_LAYOUT, 0)

    async def work(ledgers: LedgerStore) -> None:
        uri = bookies.uri.replace("zk+hierarchical", "zk+longhierarchical")
        java_id = int(java_client.call("create", uri=uri)["ledger"])
        assert await ledgers.store.exists(f"{bookies.root}/000/0000/0000/0000/L{java_id:04d}") is not None
        metadata, _ = await ledgers.read(java_id, sync=True)
        our_id = await ledgers.new_ledger_id()
        await ledgers.create(our_id, metadata)
        assert await ledgers.list() == java_client.call("list", uri=uri)["ledgers"] == [java_id, our_id]
        java_client.call("delete", uri=uri, ledger=our_id)
        await ledgers.store.sync(bookies.root)
        assert await ledgers.list() == [java_id]

    _on_metadata(bookies, lay_out)
    try:
        bookies.start("ours", "ours", "ours")
        _on_metadata(bookies, work)
    finally:
        bookies.stop_all()


def test_cookies_and_registrations_of_both_kinds_are_read_by_both(cluster: Bookies, java_jars: Path) -> None:
    async def work(ledgers: LedgerStore) -> None:
        instance_id = await ledgers.instance_id()
        for bookie_id in cluster.ids:
            cookie = await read_cookie(ledgers.store, ledgers.root, bookie_id)
            assert cookie is not None
            assert (cookie.bookie_id, cookie.instance_id) == (bookie_id, instance_id)
            assert all(folder.startswith(str(cluster.folder)) for folder in (cookie.journal_dirs, *cookie.ledger_dirs))
            host, _, port = bookie_id.rpartition(":")
            assert await ledgers.bookie_address(bookie_id) == (host, int(port))
            output = run_shell(java_jars, cluster.java_conf(), ("cookie_get", bookie_id))
            assert f'bookieHost: "{bookie_id}"' in output
            assert all(folder in output for folder in cookie.ledger_dirs), output

    _on_metadata(cluster, work)


def test_our_bookies_join_a_cluster_that_java_made_and_serve_its_clients(
    java_client: JavaClient, zookeeper: str, tmp_path: Path, java_jars: Path
) -> None:
    bookies = Bookies(zookeeper, "/compat-by-java", tmp_path, java_jars, formatted_by="java")
    nodes: list[tuple[bytes, int]] = []

    async def look(ledgers: LedgerStore) -> None:
        for path in (paths.layout_path(ledgers.root), paths.instance_id_path(ledgers.root)):
            nodes.append(await ledgers.store.get(path))

    _on_metadata(bookies, look)
    try:
        bookies.start("ours", "ours")
        bookies.start("java")
        _on_metadata(bookies, look)
        assert nodes[:2] == nodes[2:]
        ledger = java_client.call("create", uri=bookies.uri)["ledger"]
        java_client.call("append", uri=bookies.uri, ledger=ledger, n=50)
        seen = java_client.call("read", uri=bookies.uri, ledger=ledger, recover=True)
        assert (seen["count"], seen["bad"]) == (50, 0)
    finally:
        bookies.stop_all()
