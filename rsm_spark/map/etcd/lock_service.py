"""etcd's Lock service: a lock is a queue of keys, see `rsm_spark.map.etcd.key_queue`."""

from __future__ import annotations

import grpc

from rsm_spark.map.etcd import errors as e
from rsm_spark.map.etcd.caller import EtcdCaller
from rsm_spark.map.etcd.etcd_pb2 import (
    DeleteRangeRequest,
    LockRequest,
    LockResponse,
    RangeRequest,
    UnlockRequest,
    UnlockResponse,
)
from rsm_spark.map.etcd.key_queue import KeyQueue
from rsm_spark.map.etcd.kv_service import EtcdKvService


class EtcdLockService:
    """See the module.

    Args:
        queue: Of the map.
        kv: Of the same.

    """

    def __init__(self, queue: KeyQueue, kv: EtcdKvService) -> None:
        self._queue = queue
        self._kv = kv

    async def lock(self, request: LockRequest, caller: EtcdCaller) -> LockResponse:
        """Wait for a lock; who goes before it has it gives its place up.

        Raises:
            EtcdError: There is no such lease, it ended meanwhile, or the keys are not the caller's.
            RsmError: The leader cannot be asked.

        """
        place = await self._queue.enter(request.name, request.lease, b"", caller)
        try:
            await self._queue.wait(place, caller)
            held = await self._kv.range(RangeRequest(key=place.key), caller)
        except BaseException:
            self._queue.leave(place, caller)
            raise
        if not held.kvs or held.kvs[0].create_revision != place.revision:
            raise e.EtcdError(grpc.StatusCode.UNKNOWN, "mutex: session is expired")
        return LockResponse(header=held.header, key=place.key)

    async def unlock(self, request: UnlockRequest, caller: EtcdCaller) -> UnlockResponse:
        """Give a lock back; see `lock`."""
        done = await self._kv.delete_range(DeleteRangeRequest(key=request.key), caller)
        return UnlockResponse(header=done.header)
