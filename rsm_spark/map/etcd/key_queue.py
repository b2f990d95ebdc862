"""Queues of keys under a prefix, as etcd's clients keep them: who has the key that was created first is at the head.

    <name>/<lease in hex>   attached to that lease: it leaves the queue when its holder's lease ends

Locks and elections of clients are such queues, and those that are served are the same ones: either sees the other.
"""

from __future__ import annotations

import asyncio
import contextlib
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Coroutine
from typing import Any, NamedTuple

from ledger.errors import LedgerError
from rsm_spark.errors import RsmError
from rsm_spark.map.etcd import errors as e
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
_QUEUE_KEYS_MAX = 10_000
_ORDERS_MAX = 16


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


class _QueueOrder:
    """Keys of a queue as they were at a revision, in the order of their creation; those that are gone leave."""

    __slots__ = ("created", "keys", "revision")

    def __init__(self, revision: int, created: list[int], keys: list[bytes]) -> None:
        self.revision = revision
        self.created = created
        self.keys = keys

    def forget(self, key: bytes, created: int) -> None:
        """Take a key out that is gone."""
        for at in range(bisect_left(self.created, created), bisect_right(self.created, created)):
            if self.keys[at] == key:
                del self.keys[at], self.created[at]
                return


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
        self._backend = backend
        self._kv = kv
        self._orders: OrderedDict[bytes, _QueueOrder] = OrderedDict()
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
        """Wait until a place is at the head; see `enter`.

        Whatever this replica has applied up to the place's own revision is enough: a key that was created before the
        place was is in its state, or has gone.
        """
        caller.check_read((place.prefix, end_of(place.prefix)))
        await self._backend.applied(place.revision)
        while True:
            order = await self._order(place, caller)
            before = bisect_left(order.created, place.revision) - 1
            if before < 0:
                return
            key, created = order.keys[before], order.created[before]
            await self.waits.gone(key, created)
            order.forget(key, created)

    async def _order(self, place: QueuePlace, caller: EtcdCaller) -> _QueueOrder:
        """Return the order of a queue that was looked at when the place was in it; those who wait share it."""
        found = self._orders.get(place.prefix)
        if found is not None and found.revision >= place.revision:
            self._orders.move_to_end(place.prefix)
            return found
        revision = self._backend.revision
        end = end_of(place.prefix)
        request = RangeRequest(key=place.prefix, range_end=end, limit=_QUEUE_KEYS_MAX)
        rows = await self._kv.rows(request, (place.prefix, end), revision, caller.owner)
        if len(rows) > _QUEUE_KEYS_MAX:
            raise e.exhausted(f"rsm: more than {_QUEUE_KEYS_MAX} keys begin with {place.prefix!r}: that is no queue")
        rows.sort(key=lambda row: row.entry.create_revision)
        order = _QueueOrder(revision, [row.entry.create_revision for row in rows], [row.key for row in rows])
        newest = self._orders.get(place.prefix)
        if newest is None or newest.revision < revision:
            self._orders[place.prefix] = order
            self._orders.move_to_end(place.prefix)
            if len(self._orders) > _ORDERS_MAX:
                self._orders.popitem(last=False)
        return order

    async def head(self, prefix: bytes, caller: EtcdCaller) -> RangeResponse:
        """Return the key at the head, or none; see `enter`."""
        request = RangeRequest(
            key=prefix, range_end=end_of(prefix), limit=1, sort_target=RangeRequest.CREATE,
            sort_order=RangeRequest.ASCEND,
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
