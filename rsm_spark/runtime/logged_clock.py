"""Logged time of one leadership, and whether this machine's clock is fit to begin one.

A leader whose clock is an hour ahead would let every deadline of the log fire early, for good: logged time never
falls. So whoever claims a log compares its clock with the time at which the metadata store wrote the claim.
"""

from __future__ import annotations

import logging

from ledger.errors import LedgerError, NoNodeError
from rsm_spark.core.chain import chain_path
from rsm_spark.log.discovery import MemberKeeper
from rsm_spark.log.election import election_path
from rsm_spark.runtime.context import ReplicaContext

_LOGGER = logging.getLogger(__name__)

SKEW_WARNED_MS = 2_000
"""A clock that is further off is reported."""

SKEW_DECLINED_MS = 30_000
"""Error of its clock above which a replica does not lead, unless nobody else can."""

_DECLINED_S = 60.0
_ALARM = "clock"


class LoggedClock:
    """Logged time of one leadership: never before what was logged, and going on with the monotonic clock.

    Args:
        logged_ms: Last logged time.
        wall_ms: Wall clock now, asked only here.
        monotonic_s: Monotonic clock now.

    """

    def __init__(self, logged_ms: int, wall_ms: int, monotonic_s: float) -> None:
        self.base_ms = max(logged_ms, wall_ms)
        self._began_s = monotonic_s

    def read(self, logged_ms: int, monotonic_s: float) -> int:
        """Return logged time now, not before `logged_ms`."""
        return max(logged_ms, self.base_ms + int((monotonic_s - self._began_s) * 1000))


def clock_skew_ms(written_ms: int, before_ms: int, after_ms: int) -> int:
    """Return how far the own clock is ahead of another one, at least; below 0 = behind.

    Args:
        written_ms: When the other side wrote, by its clock.
        before_ms: When it was asked to, by the own clock.
        after_ms: When it had answered, by the own clock.

    """
    if before_ms > written_ms:
        return before_ms - written_ms
    return min(0, after_ms - written_ms)


async def check_clock(context: ReplicaContext, before_ms: int, after_ms: int, monotonic_s: float) -> str:
    """Compare the clock with the metadata store's, by the chain that was just written.

    Returns:
        Why this replica should not lead; "" = it may, or nobody else can.

    """
    store, settings = context.client.store, context.settings
    try:
        written_ms = await store.modified_ms(chain_path(context.log, settings.rsm_root))
        skew_ms = clock_skew_ms(written_ms, before_ms, after_ms)
        if abs(skew_ms) <= SKEW_WARNED_MS:
            context.alarms.pop(_ALARM, None)
            return ""
        direction = "ahead of" if skew_ms > 0 else "behind"
        text = (
            f"the clock of replica {context.me.replica_id} is {abs(skew_ms) / 1000:.1f} s {direction} that of the "
            "metadata store: check NTP on both"
        )
        context.alarms[_ALARM] = text
        _LOGGER.warning("%s", text, extra=context.log_extra)
        line = await store.children(election_path(context.log, settings.rsm_root))
    except (LedgerError, NoNodeError) as error:
        _LOGGER.info("clock not compared: %s", error, extra=context.log_extra)
        return ""
    others = [name for name in line if not name.startswith(context.me.incarnation)]
    declined_at = context.declined_at
    # Who has just declined and is elected again is the best there is: the others are gone, or are no better.
    is_first_time = declined_at is None or monotonic_s - declined_at > _DECLINED_S
    if abs(skew_ms) <= SKEW_DECLINED_MS or not others or not is_first_time:
        return ""
    context.declined_at = monotonic_s
    return text


async def compare_again(context: ReplicaContext, keeper: MemberKeeper) -> None:
    """Take the alarm of a clock back if that was set right: it is compared with the time of a write of the own node."""
    if _ALARM not in context.alarms:
        return
    before_ms = context.clock_ms()
    try:
        written_ms = await keeper.touch()
    except LedgerError as error:
        _LOGGER.info("clock not compared: %s", error, extra=context.log_extra)
        return
    if written_ms is None or abs(clock_skew_ms(written_ms, before_ms, context.clock_ms())) > SKEW_WARNED_MS:
        return
    context.alarms.pop(_ALARM, None)
    _LOGGER.info("the clock agrees with that of the metadata store again", extra=context.log_extra)
