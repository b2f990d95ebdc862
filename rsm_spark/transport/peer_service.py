"""Service of a replica to the other replicas of its log: its snapshots, a place to report to, how far the log is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from io import BufferedReader
from typing import Any, NoReturn, TypeVar

import grpc
import grpc.aio

from ledger.rights.table import Right
from rsm_spark.core.commands import Answer, Report
from rsm_spark.errors import InvalidCommandError, RsmError
from rsm_spark.runtime.peers import LogIndex
from rsm_spark.snapshots.local import LocalSnapshots
from rsm_spark.transport.peer_codec import (
    CHUNK_BYTES_MAX,
    PEER_SERVICE,
    decode_download,
    decode_list,
    decode_read_index,
    decode_report,
    encode_chunk,
    encode_read_index_answer,
    encode_report_answer,
    encode_snapshots,
)
from rsm_spark.transport.server import ReplicaServer

DOWNLOADS_MAX = 4
"""Files that are copied from a replica at once; each holds two chunks of memory. More are refused, and come again."""


Decoded = TypeVar("Decoded")


class PeerService:
    """Serves one replica's snapshots, whatever its role.

    Args:
        log: Name of the replica's log; calls meant for another are refused.
        replica_id: Of the replica.
        snapshots: Its local ones.
        report: Takes a report, as a leader; else answers NOT_LEADER.
        read_index: Says how far the log is, likewise.
        domain: What its disk fails together with; "" = nothing but itself.

    """

    def __init__(
        self,
        log: str,
        replica_id: str,
        snapshots: LocalSnapshots,
        report: Callable[[Report], Awaitable[Sequence[Answer]]],
        read_index: Callable[[], Awaitable[LogIndex]],
        *,
        domain: str = "",
    ) -> None:
        self._log = log
        self._replica_id = replica_id
        self._domain = domain or replica_id
        self._snapshots = snapshots
        self._take_report = report
        self._tell_index = read_index
        self._download_count = 0

    def add_to(self, server: ReplicaServer) -> None:
        """Have a server that has not started yet serve this too."""
        server.add_service(
            PEER_SERVICE,
            {
                "List": grpc.unary_unary_rpc_method_handler(self._list),
                "Download": grpc.unary_stream_rpc_method_handler(self._download),
                "Report": grpc.unary_unary_rpc_method_handler(self._report),
                "ReadIndex": grpc.unary_unary_rpc_method_handler(self._read_index),
            },
            {
                "List": Right.SNAPSHOT_READ,
                "Download": Right.SNAPSHOT_READ,
                "Report": Right.REPORT,
                "ReadIndex": Right.REPORT,
            },
        )

    async def _list(self, text: bytes, context: Any) -> bytes:
        await self._check_log(context, await _decoded(context, decode_list, text))
        manifests = await asyncio.to_thread(self._snapshots.manifests)
        damaged = await asyncio.to_thread(self._snapshots.damaged)
        protected = await asyncio.to_thread(self._snapshots.protected_manifests)
        return encode_snapshots(self._replica_id, self._domain, manifests, damaged, protected)

    async def _download(self, text: bytes, context: Any) -> None:
        wanted = await _decoded(context, decode_download, text)
        await self._check_log(context, wanted.log)
        if self._download_count >= DOWNLOADS_MAX:
            await _abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, f"{DOWNLOADS_MAX} files are being copied already")
        self._download_count += 1
        try:
            manifests = await asyncio.to_thread(self._snapshots.manifests)
            place = (wanted.revision, wanted.prefix_hash)
            manifest = next((one for one in manifests if (one.revision, one.prefix_hash) == place), None)
            lent = None
            if manifest is not None:
                lent = await asyncio.to_thread(self._snapshots.lend, manifest, wanted.file)
            if lent is None:
                await _abort(
                    context,
                    grpc.StatusCode.NOT_FOUND,
                    f"replica {self._replica_id} has no file {wanted.file!r} of a snapshot of revision "
                    f"{wanted.revision} (any more)",
                )
            await self._send(context, *lent, wanted.offset)
        finally:
            self._download_count -= 1

    async def _send(self, context: Any, file: BufferedReader, size: int, offset: int) -> None:
        with file:
            file.seek(offset)
            while offset < size:
                content = await asyncio.to_thread(file.read, CHUNK_BYTES_MAX)
                if not content:
                    return  # Shorter than its manifest says: the copier finds out.
                await context.write(encode_chunk(content))
                offset += len(content)

    async def _report(self, text: bytes, context: Any) -> bytes:
        log, report = await _decoded(context, decode_report, text)
        await self._check_log(context, log)
        (answer,) = await self._take_report(report)
        return encode_report_answer(answer)

    async def _read_index(self, text: bytes, context: Any) -> bytes:
        await self._check_log(context, await _decoded(context, decode_read_index, text))
        return encode_read_index_answer(await self._tell_index())

    async def _check_log(self, context: Any, log: str) -> None:
        if log != self._log:
            await _abort(
                context,
                grpc.StatusCode.FAILED_PRECONDITION,
                f"this replica, {self._replica_id}, serves the log {self._log!r}, the call is meant for {log!r}",
            )


async def _decoded(context: Any, decode: Callable[[bytes], Decoded], text: bytes) -> Decoded:
    try:
        return decode(text)
    except InvalidCommandError as error:
        await _abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))


async def _abort(context: Any, code: grpc.StatusCode, reason: str) -> NoReturn:
    await context.abort(code, reason)
    raise RsmError(reason)
