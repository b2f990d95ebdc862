"""Agreement of a leader with the consumers of its log about what may be trimmed: first tell, then ask, then trim.

1. The leader plans with the consumers that it finds, and tells up to where the log goes.
2. It asks again who is there. Whoever has registered before that holds what it has not read.
3. It tells what is left of the plan, and trims no further. Whoever registers later reads the notice, or a chain that
   has changed already, and knows.

A notice is never told over one of a later leader: a deposed leader's chain write fails, so its notice may not count.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from ledger.errors import BadVersionError, NodeExistsError, NoNodeError
from rsm_spark.core.trimming import ConsumerHold
from rsm_spark.errors import NotLeaderError
from rsm_spark.log.consumers import LogConsumers, TrimNotice

Plan = Callable[[tuple[ConsumerHold, ...]], int]
"""Plan with the holds of consumers: the last revision that goes; 0 = nothing does."""


async def agreed_trim(consumers: LogConsumers, epoch: int, plan: Plan) -> tuple[tuple[ConsumerHold, ...], int]:
    """Tell the consumers of a log what goes; return what they hold, and the revision behind which nothing may go.

    Whoever calls it again must have finished what it trimmed after the call before, or given it up.

    Args:
        consumers: Of the log.
        epoch: Of the leader.
        plan: Called once or twice.

    Raises:
        NotLeaderError: A later leader has told something.
        CorruptLogError: Nobody can read what was told before.
        MetadataError: The metadata store cannot be asked; nothing may be trimmed.

    """
    holds = await _holds(consumers)
    wanted = plan(holds)
    if await _told(consumers, TrimNotice(epoch, wanted)):
        holds = await _holds(consumers)
        left = min(plan(holds), wanted)
        if left < wanted:
            await _told(consumers, TrimNotice(epoch, left))
        wanted = left
    return holds, wanted


async def _holds(consumers: LogConsumers) -> tuple[ConsumerHold, ...]:
    return tuple(one.hold for one in await consumers.present())


async def _told(consumers: LogConsumers, notice: TrimNotice) -> bool:
    """Have a notice stand; return whether something goes by it."""
    while True:
        before, version = await consumers.notice()
        if before.epoch > notice.epoch:
            raise NotLeaderError(
                f"{consumers.path}: the leader of epoch {before.epoch} tells what is trimmed, this one is of epoch "
                f"{notice.epoch}: nothing is trimmed by it"
            )
        if before == notice or (version is None and not notice.revision):
            return notice.revision > 0
        with contextlib.suppress(BadVersionError, NodeExistsError, NoNodeError):
            await consumers.tell(notice, version)
            return notice.revision > 0
