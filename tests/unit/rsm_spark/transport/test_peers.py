"""Replicas copy each other's snapshots over gRPC, whatever happens on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rsm_spark.core.commands import Answer, AnswerStatus, Report, ReportDiverged, ReportVerified, ReportWithdrawn
from rsm_spark.core.digest import StateDigest, digest_bytes
from rsm_spark.core.freshness import LeaderClock
from rsm_spark.core.machine import Row
from rsm_spark.core.records import pack
from rsm_spark.errors import ConnectionLostError, CorruptSnapshotError, SnapshotGoneError
from rsm_spark.log.member import Member
from rsm_spark.map.records import MAP_DESCRIPTION
from rsm_spark.runtime.peers import LogIndex
from rsm_spark.snapshots.local import LocalSnapshots
from rsm_spark.snapshots.manifest import SnapshotManifest
from rsm_spark.transport import peer_codec
from rsm_spark.transport.peer_client import GrpcPeers
from rsm_spark.transport.peer_service import DOWNLOADS_MAX, PeerService
from rsm_spark.transport.security import Security
from rsm_spark.transport.server import ReplicaServer

LOG = "orders"
REPORTS: list[Report] = [
    ReportVerified("replica:a", "rack-1", 7, b"d" * 16, b"p" * 32, 3, "b"),
    ReportWithdrawn("lake", "b", "it is gone"),
    ReportDiverged(9, b"x" * 16, "c"),
]


def state(count: int, size: int = 100) -> list[Row]:
    import random

    rng = random.Random(count)
    return [Row("map", pack((b"k%06d" % n,)), pack((rng.randbytes(size),)), n + 1) for n in range(count)]


def written(store: LocalSnapshots, revision: int, count: int = 20, size: int = 100) -> SnapshotManifest:
    rows, digest = state(count, size), StateDigest()
    for row in rows:
        digest.replace(row.table, row.key, None, row.row)
    manifest = SnapshotManifest(
        log_name=LOG, log_id="0" * 32, revision=revision, ledger_id=3, entry_id=7, prefix_hash=f"{revision:064x}"[::-1],
        digest=digest_bytes(digest.value).hex(), row_count=len(rows), leader_epoch=2, logged_ms=1, created_ms=2,
        machine=MAP_DESCRIPTION, written_by="a",
    )  # fmt: skip
    return store.write(manifest, rows)


class Book:
    """Where replicas are."""

    def __init__(self) -> None:
        self.addresses: dict[str, str] = {}

    async def member(self, replica_id: str) -> Member | None:
        address = self.addresses.get(replica_id)
        return None if address is None else Member(replica_id, "0" * 32, address)

    async def leader(self) -> Any:
        member = await self.member("a")
        return None if member is None else (None, member)


class Pair:
    """Replica a, which has snapshots and leads, and b, which copies them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.a, self.b = LocalSnapshots(folder / "a"), LocalSnapshots(folder / "b")
        self.book = Book()
        self.reports: list[Report] = []
        self.index = 6
        self.service = PeerService(LOG, "a", self.a, self._take, self._tell, domain="rack-1")
        self.server: ReplicaServer | None = None

    async def _take(self, report: Report) -> Sequence[Answer]:
        self.reports.append(report)
        return [Answer(AnswerStatus.REFUSED, 5, b"why")]

    async def _tell(self) -> LogIndex:
        self.index += 1
        return LogIndex(AnswerStatus.OK, self.index, LeaderClock(3, 50_000) if self.index == 7 else None)

    def peers(self, log: str = LOG, **options: Any) -> GrpcPeers:
        return GrpcPeers(log, self.book, self.b, Security(), **options)  # type: ignore[arg-type]

    async def serve(self, port: int = 0) -> None:
        self.server = ReplicaServer(LOG, port=port)
        self.service.add_to(self.server)
        await self.server.start(None, lambda: b"{}")  # type: ignore[arg-type]
        self.book.addresses["a"] = self.server.address


@asynccontextmanager
async def pair_in(folder: Path) -> AsyncIterator[Pair]:
    pair = Pair(folder)
    await pair.serve()
    try:
        yield pair
    finally:
        assert pair.server is not None
        await pair.server.stop(0)


@pytest.mark.asyncio
async def test_what_a_replica_has_is_listed_with_its_damage_and_its_domain(tmp_path: Path) -> None:
    async with pair_in(tmp_path) as pair:
        older, newer = written(pair.a, 5), written(pair.a, 9)
        (tmp_path / "a" / "00000000000000000011-abcdefab").mkdir()
        found = await pair.peers().list("a")
        assert (found.replica_id, found.domain, found.manifests) == ("a", "rack-1", (newer, older))
        assert "00000000000000000011-abcdefab" in found.damaged[0]


@pytest.mark.asyncio
async def test_a_snapshot_arrives_as_it_is(tmp_path: Path) -> None:
    async with pair_in(tmp_path) as pair:
        manifest = written(pair.a, 9)
        assert await pair.peers().download("a", manifest, read_back=True) == manifest
        assert LocalSnapshots(tmp_path / "b").manifests() == [manifest]
        assert sorted(pair.b.read(manifest)) == state(20)
        assert [path.name for path in (tmp_path / "b").iterdir()] == [next((tmp_path / "a").iterdir()).name]


@pytest.mark.asyncio
async def test_a_large_file_comes_in_chunks_and_goes_on_after_a_break(tmp_path: Path) -> None:
    async with pair_in(tmp_path) as pair:
        manifest = written(pair.a, 9, count=50, size=100_000)
        (file,) = manifest.files
        incoming = pair.b.receive(manifest)
        whole = next((tmp_path / "a").iterdir()) / file.name
        incoming.append(file, whole.read_bytes()[:3_000_000])
        peers = pair.peers()
        await peers.download("a", manifest, read_back=False)
        assert peers.chunks_received == -(-(file.bytes - 3_000_000) // peer_codec.CHUNK_BYTES_MAX) == 2
        assert sorted(pair.b.read(manifest)) == state(50, 100_000)


@pytest.mark.asyncio
async def test_bytes_that_are_wrong_are_forgotten_and_nothing_is_installed(tmp_path: Path) -> None:
    async with pair_in(tmp_path) as pair:
        manifest = written(pair.a, 9, count=50, size=100_000)
        pair.b.receive(manifest).append(manifest.files[0], b"x" * 1000)
        with pytest.raises(CorruptSnapshotError, match="sha256"):
            await pair.peers().download("a", manifest, read_back=False)
        assert pair.b.manifests() == []
        await pair.peers().download("a", manifest, read_back=False)
        assert pair.b.manifests() == [manifest]


@pytest.mark.asyncio
async def test_what_is_here_already_is_copied_only_to_be_read_back(tmp_path: Path) -> None:
    async with pair_in(tmp_path) as pair:
        manifest = written(pair.a, 9)
        assert written(pair.b, 9) == manifest
        peers = pair.peers()
        assert await peers.download("a", manifest, read_back=False) == manifest
        assert peers.chunks_received == 0
        assert await peers.download("a", manifest, read_back=True) == manifest
        assert peers.chunks_received == 1
        assert [path.name for path in (tmp_path / "b").iterdir()] == [next((tmp_path / "a").iterdir()).name]


@pytest.mark.asyncio
async def test_a_snapshot_that_went_away_is_said_to_be_gone_and_leaves_nothing(tmp_path: Path) -> None:
    async with pair_in(tmp_path) as pair:
        manifest = written(pair.a, 1)
        for revision in range(2, 6):
            written(pair.a, revision)
        with pytest.raises(SnapshotGoneError, match="any more"):
            await pair.peers().download("a", manifest, read_back=True)
        assert list((tmp_path / "b").iterdir()) == []


@pytest.mark.asyncio
async def test_a_snapshot_that_is_being_copied_is_not_pruned(tmp_path: Path) -> None:
    async with pair_in(tmp_path) as pair:
        manifest = written(pair.a, 1)
        await pair.peers().download("a", manifest, read_back=True)
        for revision in range(2, 8):
            written(pair.a, revision)
        assert [one.revision for one in pair.a.manifests()] == [7, 6, 5, 1]


@pytest.mark.asyncio
async def test_a_peer_that_died_is_an_error_soon_and_one_that_comes_back_is_used(tmp_path: Path) -> None:
    async with pair_in(tmp_path) as pair:
        manifest = written(pair.a, 9)
        assert pair.server is not None
        port = int(pair.server.address.rpartition(":")[2])
        await pair.server.stop(0)
        with pytest.raises(ConnectionLostError, match="replica a"):
            await pair.peers().list("a")
        with pytest.raises(ConnectionLostError, match="is not running"):
            await pair.peers().list("z")
        coming = asyncio.get_running_loop().create_task(pair.peers().download("a", manifest, read_back=True))
        await asyncio.sleep(0)
        await pair.serve(port)
        assert await coming == manifest


@pytest.mark.asyncio
async def test_a_peer_that_is_silent_is_given_up(tmp_path: Path) -> None:
    async with pair_in(tmp_path) as pair:
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        pair.book.addresses["a"] = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(ConnectionLostError, match="replica at|is silent"):
            await pair.peers(call_s_max=0.2).list("a")
        server.close()


@pytest.mark.asyncio
async def test_a_replica_of_another_log_refuses(tmp_path: Path) -> None:
    async with pair_in(tmp_path) as pair:
        with pytest.raises(ConnectionLostError, match="serves the log 'orders', the call is meant for 'bills'"):
            await pair.peers("bills").list("a")


@pytest.mark.asyncio
async def test_more_copies_at_once_than_allowed_wait_their_turn(tmp_path: Path) -> None:
    async with pair_in(tmp_path) as pair:
        manifest = written(pair.a, 9)
        pair.service._download_count = DOWNLOADS_MAX
        coming = asyncio.get_running_loop().create_task(pair.peers().download("a", manifest, read_back=True))
        await asyncio.wait([coming], timeout=0.05)
        assert not coming.done()
        pair.service._download_count = 0
        assert await coming == manifest


@pytest.mark.asyncio
@pytest.mark.parametrize("report", REPORTS)
async def test_a_report_reaches_the_leader_and_its_answer_comes_back(tmp_path: Path, report: Report) -> None:
    async with pair_in(tmp_path) as pair:
        answer = await pair.peers().report(report)
        assert pair.reports == [report]
        assert answer == Answer(AnswerStatus.REFUSED, 5, b"why")
        pair.book.addresses.clear()
        with pytest.raises(ConnectionLostError, match="there is no leader"):
            await pair.peers().report(report)


@pytest.mark.asyncio
async def test_a_peer_behind_a_token_serves_only_who_has_it(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0123456789abcdef")
    pair = Pair(tmp_path)
    manifest = written(pair.a, 9)
    server = ReplicaServer(LOG, security=Security(token_file=str(token)))
    pair.service.add_to(server)
    await server.start(None, lambda: b"{}")  # type: ignore[arg-type]
    pair.book.addresses["a"] = server.address
    try:
        with pytest.raises(ConnectionLostError, match="token"):
            await pair.peers().list("a")
        with pytest.raises(ConnectionLostError, match="token"):
            await pair.peers().report(REPORTS[0])
        assert pair.reports == []
        trusted = GrpcPeers(LOG, pair.book, pair.b, Security(token_file=str(token)))  # type: ignore[arg-type]
        assert await trusted.download("a", manifest, read_back=True) == manifest
    finally:
        await server.stop(0)


@pytest.mark.asyncio
async def test_a_leader_says_how_far_the_log_is_also_after_it_began_anew(tmp_path: Path) -> None:
    async with pair_in(tmp_path) as pair:
        peers, address = pair.peers(), pair.book.addresses["a"]
        try:
            assert await peers.read_index(address) == (AnswerStatus.OK, 7, LeaderClock(3, 50_000))
            assert await peers.read_index(address) == (AnswerStatus.OK, 8, None)  # As one of an older release tells.
            with pytest.raises(ConnectionLostError, match="orders"):
                await pair.peers("another").read_index(address)
            with pytest.raises(ConnectionLostError, match="cannot be asked|unavailable|silent"):
                await pair.peers(call_s_max=0.3).read_index("127.0.0.1:1")
            assert pair.server is not None
            await pair.server.stop(0)
            await pair.serve(int(address.rpartition(":")[2]))
            async with asyncio.timeout(60):
                while True:
                    try:
                        assert (await peers.read_index(address)).revision > 8
                        break
                    except ConnectionLostError:
                        await asyncio.sleep(0.05)
        finally:
            await peers.close()
