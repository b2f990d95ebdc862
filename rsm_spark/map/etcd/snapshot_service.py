"""etcd's `Snapshot`: the map as a file of etcd's own storage, from which etcd begins with the same keys and leases.

    rows of one revision -> a file beside the replica's data, by a thread -> the stream, and behind it its SHA-256

What was before that revision is not in it: etcd says that it is compacted. One of them is made at a time.
"""

from __future__ import annotations

import asyncio
import hashlib
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import grpc

from ledger.errors import LedgerError
from rsm_spark.errors import RsmError
from rsm_spark.map.etcd import errors as e
from rsm_spark.map.etcd.backend import EtcdBackend
from rsm_spark.map.etcd.bolt_file import BoltWriter
from rsm_spark.map.etcd.caller import CallHandlers, EtcdCaller, abort
from rsm_spark.map.etcd.cluster_service import VERSION
from rsm_spark.map.etcd.etcd_pb2 import RangeRequest, SnapshotResponse, StoredLease
from rsm_spark.map.etcd.kv_service import EtcdKvService
from rsm_spark.map.etcd.lease_service import EtcdLeaseService
from rsm_spark.map.etcd.ranges import key_value
from rsm_spark.map.etcd.view import KeyShown

KEYS_MAX = 1_000_000
_CHUNK_BYTES = 256 * 1024
_TAKEN_S = 60.0
"""A chunk that is not taken in so long ends the stream: others may want a snapshot, too."""
_LEASE_S = 60
"""Of a lease that has ended while the rows were read."""
_EMPTY = (b"alarm", b"auth", b"authRoles", b"authUsers", b"cluster", b"members", b"members_removed")


class EtcdSnapshotService:
    """See the module.

    Args:
        backend: The map.
        kv: Reads it.
        leases: Lists its leases.
        folder: For the file while it is needed.

    """

    def __init__(self, backend: EtcdBackend, kv: EtcdKvService, leases: EtcdLeaseService, folder: Path) -> None:
        self._backend = backend
        self._kv = kv
        self._leases = leases
        self._folder = folder
        self._is_busy = False

    def handler(self, method: str, handlers: CallHandlers) -> grpc.RpcMethodHandler[bytes, bytes]:
        """Return the handler of the streams."""

        async def handle(_text: bytes, context: Any) -> None:
            try:
                caller = handlers.caller(method, context)
                caller.check_whole("a snapshot")
                if self._is_busy:
                    raise e.exhausted("rsm: this replica makes one snapshot at a time: ask later, or another one")
                self._is_busy = True
                try:
                    await self._send(caller, context)
                finally:
                    self._is_busy = False
            except (RsmError, LedgerError, OverflowError) as error:
                await abort(context, error)
            except OSError as error:
                why = f"rsm: the file of the snapshot cannot be written in {self._folder}: {error.strerror}"
                await abort(context, e.unavailable(why))

        return grpc.unary_stream_rpc_method_handler(handle)

    async def _send(self, caller: EtcdCaller, context: Any) -> None:
        backend = self._backend
        revision = await backend.linearizable()
        header = backend.header(revision)
        rows = await self._rows(revision, caller)
        leases = await self._leases.times(caller)
        with tempfile.TemporaryFile(dir=self._folder, prefix="etcd-snapshot-") as file:
            left = await asyncio.to_thread(_write, file, rows, leases, revision, header.raft_term)
            del rows
            file.seek(0)
            digest = hashlib.sha256()
            while chunk := await asyncio.to_thread(file.read, _CHUNK_BYTES):
                digest.update(chunk)
                left -= len(chunk)
                await self._chunk(SnapshotResponse(header=header, remaining_bytes=left, blob=chunk), context)
        await self._chunk(SnapshotResponse(header=header, blob=digest.digest()), context)

    async def _rows(self, revision: int, caller: EtcdCaller) -> list[KeyShown]:
        request = RangeRequest(key=b"\0", range_end=b"\0", limit=KEYS_MAX)
        try:
            rows = await self._kv.rows(request, (b"\0", None), revision, caller.owner)
        except e.EtcdError as error:
            if error.code is not grpc.StatusCode.OUT_OF_RANGE:
                raise
            raise e.unavailable("rsm: the map has changed too much while it was read: ask again") from None
        if len(rows) > KEYS_MAX:
            raise e.exhausted(f"rsm: a snapshot has {KEYS_MAX} keys at most: rsm backup create takes any number")
        return rows

    @staticmethod
    async def _chunk(response: SnapshotResponse, context: Any) -> None:
        response.version = VERSION
        try:
            async with asyncio.timeout(_TAKEN_S):
                await context.write(response.SerializeToString())
        except TimeoutError:
            raise e.unavailable(f"rsm: nothing of the snapshot was taken for {_TAKEN_S:g} s") from None


def _write(file: BinaryIO, rows: list[KeyShown], leases: dict[int, int], revision: int, term: int) -> int:
    """Write the file; return its size."""
    rows.sort(key=lambda row: row.entry.mod_revision)
    writer = BoltWriter(file)
    writer.bucket(b"key", _by_revision(rows))
    held = dict.fromkeys((row.lease for row in rows if row.lease), _LEASE_S) | leases
    kept = sorted((struct.pack(">q", lease), StoredLease(id=lease, ttl=ttl)) for lease, ttl in held.items())
    writer.bucket(b"lease", ((key, lease.SerializeToString()) for key, lease in kept))
    compacted = struct.pack(">QcQ", revision, b"_", 0)
    writer.bucket(
        b"meta",
        [
            (b"consistent_index", struct.pack(">Q", revision)),
            (b"finishedCompactRev", compacted),
            (b"scheduledCompactRev", compacted),
            (b"term", struct.pack(">Q", term)),
        ],
    )
    for name in _EMPTY:
        writer.bucket(name, ())
    return writer.finish()


def _by_revision(rows: list[KeyShown]) -> Iterator[tuple[bytes, bytes]]:
    """Yield rows of etcd's bucket of keys: of one revision each has a number of its own."""
    last, number = 0, 0
    for row in rows:
        revision = row.entry.mod_revision
        number = number + 1 if revision == last else 0
        last = revision
        yield struct.pack(">QcQ", revision, b"_", number), key_value(row).SerializeToString()
