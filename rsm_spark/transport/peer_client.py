"""The other replicas over gRPC; implements `rsm_spark.runtime.peers.Peers`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import grpc
import grpc.aio

from ledger.errors import LedgerError
from rsm_spark.core.commands import Answer, Report
from rsm_spark.errors import ConnectionLostError, InvalidCommandError, SnapshotGoneError
from rsm_spark.log.discovery import Discovery
from rsm_spark.log.member import Member
from rsm_spark.runtime.peers import LogIndex, PeerSnapshots
from rsm_spark.snapshots.incoming import IncomingSnapshot
from rsm_spark.snapshots.local import LocalSnapshots
from rsm_spark.snapshots.manifest import SnapshotFile, SnapshotManifest
from rsm_spark.transport.peer_codec import (
    DOWNLOAD_METHOD,
    LIST_METHOD,
    READ_INDEX_METHOD,
    REPORT_METHOD,
    WantedFile,
    decode_chunk,
    decode_read_index_answer,
    decode_report_answer,
    decode_snapshots,
    encode_download,
    encode_list,
    encode_read_index,
    encode_report,
)
from rsm_spark.transport.security import RpcChannel, Security, open_channel

CALL_S_MAX = 10.0
"""For an answer to List or Report; a peer that lists for the first time reads all its files."""
_ATTEMPTS_MAX = 4
_RETRY_S = 0.25

Decoded = TypeVar("Decoded")


class GrpcPeers:
    """Finds the other replicas by their member nodes and calls them.

    Args:
        log: Name of the log.
        discovery: Of that log.
        snapshots: The own local ones.
        security: TLS and token.
        run_blocking: Runs a blocking function elsewhere.
        call_s_max: How long a peer may be silent before it is given up.

    """

    def __init__(
        self,
        log: str,
        discovery: Discovery,
        snapshots: LocalSnapshots,
        security: Security,
        *,
        run_blocking: Callable[[Callable[[], Any]], Awaitable[Any]] = asyncio.to_thread,
        call_s_max: float = CALL_S_MAX,
    ) -> None:
        self._log = log
        self._discovery = discovery
        self._snapshots = snapshots
        self._security = security
        self._run_blocking = run_blocking
        self._call_s_max = call_s_max
        self.chunks_received = 0
        # To the replica that was asked last how far the log is: it is asked again and again.
        self._leader: tuple[str, RpcChannel] | None = None

    async def list(self, replica_id: str) -> PeerSnapshots:
        """Return what a replica has; see `Peers`."""
        return await list_snapshots(await self._address(replica_id), self._log, self._security, self._call_s_max)

    async def report(self, report: Report) -> Answer:
        """Tell the leader; see `Peers`."""
        async with _reaching("the leader", self._log):
            found = await self._discovery.leader()
            if found is None or found[1] is None or not found[1].address:
                raise ConnectionLostError(f"log {self._log}: there is no leader at present")
            return await _ask(
                found[1].address,
                self._security,
                REPORT_METHOD,
                encode_report(self._log, report),
                decode_report_answer,
                self._call_s_max,
            )

    async def read_index(self, address: str) -> LogIndex:
        """Ask a replica, as the leader, how far the log is; see `Peers`."""
        async with _reaching(f"replica at {address}", self._log):
            if self._leader is None or self._leader[0] != address:
                await self.close()
                self._leader = address, open_channel(address, self._security)
            call = self._leader[1].unary_unary(READ_INDEX_METHOD)
            return decode_read_index_answer(await call(encode_read_index(self._log), timeout=self._call_s_max))

    async def close(self) -> None:
        """Disconnect."""
        leader, self._leader = self._leader, None
        if leader is not None:
            await leader[1].close()

    async def download(self, replica_id: str, manifest: SnapshotManifest, *, read_back: bool) -> SnapshotManifest:
        """Copy a snapshot of a replica into the own store; see `Peers`. Holds a chunk at a time."""
        store = self._snapshots
        if not read_back:
            present: list[SnapshotManifest] = await self._run_blocking(store.manifests)
            if manifest in present:
                return manifest
        incoming: IncomingSnapshot = await self._run_blocking(lambda: store.receive(manifest))
        channel = open_channel(await self._address(replica_id), self._security)
        try:
            for file in manifest.files:
                await self._fetch(channel, replica_id, incoming, file)
        except SnapshotGoneError:
            await self._run_blocking(incoming.discard)
            raise
        finally:
            await channel.close()
        await self._run_blocking(incoming.seal)
        if read_back:
            await self._run_blocking(lambda: store.check_arrived(incoming))
        installed: SnapshotManifest = await self._run_blocking(lambda: store.install(incoming))
        return installed

    async def _fetch(
        self, channel: RpcChannel, replica_id: str, incoming: IncomingSnapshot, file: SnapshotFile
    ) -> None:
        """Bring the rest of a file here; over breaks, as long as each attempt brings something."""
        failed_count = 0
        while (arrived := await self._run_blocking(lambda: incoming.arrived(file))) < file.bytes:
            try:
                async with _reaching(f"replica {replica_id}", self._log):
                    await self._stream(channel, incoming, file, arrived)
            except ConnectionLostError:
                now: int = await self._run_blocking(lambda: incoming.arrived(file))
                failed_count = 0 if now > arrived else failed_count + 1
                if failed_count >= _ATTEMPTS_MAX:
                    raise
                await asyncio.sleep(_RETRY_S * 2**failed_count)

    async def _stream(self, channel: RpcChannel, incoming: IncomingSnapshot, file: SnapshotFile, offset: int) -> None:
        manifest = incoming.manifest
        wanted = WantedFile(self._log, manifest.revision, manifest.prefix_hash, file.name, offset)
        stream: Any = channel.unary_stream(DOWNLOAD_METHOD)(encode_download(wanted))
        try:
            while True:
                async with asyncio.timeout(self._call_s_max):
                    text = await stream.read()
                if text is grpc.aio.EOF:
                    break
                content = decode_chunk(text)
                await self._run_blocking(partial(incoming.append, file, content))
                self.chunks_received += 1
                offset += len(content)
        finally:
            stream.cancel()
        if offset < file.bytes:
            raise SnapshotGoneError(
                f"{file.name} of the snapshot of revision {manifest.revision} ends after {offset} of {file.bytes} bytes"
            )

    async def _address(self, replica_id: str) -> str:
        async with _reaching(f"replica {replica_id}", self._log):
            member = await self._discovery.member(replica_id)
        return _address_of(member, replica_id, self._log)


async def list_snapshots(address: str, log: str, security: Security, timeout_s: float) -> PeerSnapshots:
    """Return what the replica at an address has on its disk.

    Raises:
        ConnectionLostError: It is gone, or does not answer.

    """
    async with _reaching(f"replica at {address}", log):
        return await _ask(
            address,
            security,
            LIST_METHOD,
            encode_list(log),
            lambda text: decode_snapshots(text, place=address),
            timeout_s,
        )


def _address_of(member: Member | None, replica_id: str, log: str) -> str:
    if member is None or not member.address:
        raise ConnectionLostError(f"log {log}: replica {replica_id} is not running, or serves nobody")
    return member.address


async def _ask(
    address: str, security: Security, method: str, text: bytes, decode: Callable[[bytes], Decoded], timeout_s: float
) -> Decoded:
    channel = open_channel(address, security)
    try:
        return decode(await channel.unary_unary(method)(text, timeout=timeout_s))
    finally:
        await channel.close()


@asynccontextmanager
async def _reaching(whom: str, log: str) -> AsyncIterator[None]:
    """Turn what the network may do into our own errors."""
    try:
        yield
    except TimeoutError as error:
        raise ConnectionLostError(f"log {log}: {whom} is silent") from error
    except grpc.aio.AioRpcError as error:
        said = f"log {log}: {whom}: {error.code().name.lower()}: {error.details()}"
        if error.code() is grpc.StatusCode.NOT_FOUND:
            raise SnapshotGoneError(said) from error
        raise ConnectionLostError(said) from error
    except (LedgerError, InvalidCommandError) as error:
        raise ConnectionLostError(f"log {log}: {whom} cannot be asked: {error}") from error
