"""The least memory of all live replicas counts: each says in its member node that it is near its limit; a leader heeds.

A state is as large on a follower as on its leader. One whose limit is smaller would be ended from outside, and again
after each restart, while the leader goes on to take more. Whose node is gone, or says no such thing, holds nobody up.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec

from ledger.errors import LedgerError
from rsm_spark.log.discovery import MemberKeeper
from rsm_spark.runtime.context import ReplicaContext
from rsm_spark.runtime.logged_clock import compare_again
from rsm_spark.runtime.status import ReplicaRole

_LOGGER = logging.getLogger(__name__)
_LOOK_S = 1.0


async def share_memory_marks(context: ReplicaContext, keeper: MemberKeeper) -> None:
    """Tell the others when memory is nearly used up; while this replica leads, heed what they say. Until cancelled.

    The same look takes the alarm of a clock back that has been set right.
    """
    memory = context.memory
    while True:
        await asyncio.sleep(_LOOK_S)
        memory.look()
        is_full = memory.gauge.is_full
        if keeper.member.is_memory_full != is_full:
            keeper.tell(msgspec.structs.replace(keeper.member, is_memory_full=is_full))
        await compare_again(context, keeper)
        if context.role is not ReplicaRole.LEADER:
            memory.heed(())
            continue
        try:
            members = await context.discovery.members()
        except LedgerError as error:
            _LOGGER.info("cannot learn which replicas have used up their memory: %s", error, extra=context.log_extra)
            continue  # What was known holds.
        own = context.me.replica_id
        memory.heed([one.replica_id for one in members if one.is_memory_full and one.replica_id != own])
