"""Queues of keys under a prefix, as etcd's clients keep them: who has the key that was created first is at the head.

    <name>/<lease in hex>   attached to that lease: it leaves the queue when its holder's lease ends

Locks and elections of clients are such queues, and those that are served are the same ones: either sees the other.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, NamedTuple

from ledger.errors import LedgerError
from rsm_spark.errors import RsmError
from rsm_spark.map.etcd.backend import EtcdBackend
from rsm_spark.map.etcd.caller import EtcdCaller
from rsm_spark.map.etcd.etcd_pb2 import (
    Compare,
    DeleteRangeRequest,
    KeyValue,
    LeaseGrantRequest,
    PutRequest,
    RangeRequest,
    RangeResponse,
    RequestOp,
    ResponseHeader,
    TxnRequest,
    TxnResponse,
)
from rsm_spark.map.etcd.key_waits import KeyWaits
from rsm_spark.map.etcd.kv_service import EtcdKvService
from rsm_spark.map.etcd.lease_service import EtcdLeaseService

_LEASE_S = 60
"""Of who brings none, as etcd has it."""


class QueuePlace(NamedTuple):
    """A caller's place.

    Attributes:
        prefix: Of the queue's keys.
        key: Its own.
        revision: At which that was created.
        lease: That it is attached to.
        header: Of the answer that said so.
        found: What the key held before; None = it was created now.

    """

    prefix: bytes
    key: bytes
    revision: int
    lease: int
    header: ResponseHeader
    found: KeyValue | None


class KeyQueue:
    """See the module.

    Args:
        backend: The map.
        kv: Carries out what is done to keys, with its checks.
        leases: Grants leases.

    Attributes:
        waits: Who waits for the key before its own.

    """

    def __init__(self, backend: EtcdBackend, kv: EtcdKvService, leases: EtcdLeaseService) -> None:
        self._kv = kv
        self._leases = leases
        self.waits = KeyWaits(backend)
        self._leaving: set[asyncio.Task[None]] = set()

    async def enter(self, name: bytes, lease: int, value: bytes, caller: EtcdCaller) -> QueuePlace:
        """Have a place: a new one at the end, or the one that the lease has.

        Raises:
            EtcdError: There is no such lease, or the keys are not the caller's.
            RsmError: The leader cannot be asked.

        """
        prefix = prefix_of(name)
        if not lease:
            lease = (await self._leases.grant(LeaseGrantRequest(ttl=_LEASE_S), caller)).id
        key = prefix + format(lease, "x").encode()
        request = TxnRequest(
            compare=[created_at(key, 0)],
            success=[RequestOp(request_put=PutRequest(key=key, value=value, lease=lease))],
            failure=[RequestOp(request_range=RangeRequest(key=key))],
        )
        entering = asyncio.get_running_loop().create_task(self._kv.txn(request, caller))
        try:
            done = await asyncio.shield(entering)
        except asyncio.CancelledError:
            self._later(self._undo(entering, key, caller))
            raise
        found = None if done.succeeded else done.responses[0].response_range.kvs[0]
        revision = done.header.revision if found is None else found.create_revision
        return QueuePlace(prefix, key, revision, lease, done.header, found)

    async def wait(self, place: QueuePlace, caller: EtcdCaller) -> None:
        """Wait until a place is at the head; see `enter`."""
        while True:
            last = await self._edge(
                place.prefix, caller, sort_order=RangeRequest.DESCEND, max_create_revision=place.revision - 1
            )
            if not last.kvs:
                return
            await self.waits.gone(last.kvs[0].key, last.kvs[0].create_revision)

    async def head(self, prefix: bytes, caller: EtcdCaller) -> RangeResponse:
        """Return the key at the head, or none; see `enter`."""
        return await self._edge(prefix, caller, sort_order=RangeRequest.ASCEND)

    async def _edge(self, prefix: bytes, caller: EtcdCaller, **more: Any) -> RangeResponse:
        request = RangeRequest(
            key=prefix, range_end=end_of(prefix), sort_target=RangeRequest.CREATE, limit=1, **more
        )  # fmt: skip
        return await self._kv.range(request, caller)

    async def change(
        self, key: bytes, revision: int, operation: PutRequest | DeleteRangeRequest, caller: EtcdCaller
    ) -> TxnResponse:
        """Write or remove a key if it is still the one that was created at a revision; see `enter`."""
        if isinstance(operation, PutRequest):
            then = RequestOp(request_put=operation)
        else:
            then = RequestOp(request_delete_range=operation)
        return await self._kv.txn(TxnRequest(compare=[created_at(key, revision)], success=[then]), caller)

    def leave(self, place: QueuePlace, caller: EtcdCaller) -> None:
        """Give a place up, later: its caller is gone, or has given up waiting."""
        self._later(self.change(place.key, place.revision, DeleteRangeRequest(key=place.key), caller))

    async def _undo(self, entering: asyncio.Task[TxnResponse], key: bytes, caller: EtcdCaller) -> None:
        """Take a place back whose caller left before it was told of it."""
        done = await entering
        if done.succeeded:
            await self.change(key, done.header.revision, DeleteRangeRequest(key=key), caller)

    def _later(self, work: Coroutine[Any, Any, object]) -> None:
        async def run() -> None:
            with contextlib.suppress(RsmError, LedgerError):  # Its lease ends it.
                await work

        task = asyncio.get_running_loop().create_task(run())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def close(self) -> None:
        """Give up what is under way."""
        self.waits.close()
        for task in self._leaving:
            task.cancel()


def prefix_of(name: bytes) -> bytes:
    """Return what the keys of a queue begin with."""
    return name + b"/"


def end_of(prefix: bytes) -> bytes:
    """Return the end of the keys of a queue, exclusive."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def created_at(key: bytes, revision: int) -> Compare:
    """Return the comparison that a key was created at a revision; 0 = that it is not there."""
    return Compare(key=key, target=Compare.CREATE, result=Compare.EQUAL, create_revision=revision)
