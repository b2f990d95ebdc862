"""The ledger that a leader writes: created, appended to, published, closed; one after another."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress

from ledger.client.write_handle import WriteHandle
from ledger.errors import LedgerError, NoSuchLedgerError
from ledger.telemetry.tracing import Span
from rsm_spark.core.leadership_events import CreateLedger, Event, LedgerEndLearned, LedgerGone
from rsm_spark.core.orphans import custom_metadata
from rsm_spark.runtime.chain_requests import LedgerContext, pause

_LOGGER = logging.getLogger(__name__)
_PUBLISH_LAST_S = 1.0
"""Bookies that do not answer do not hold up the end of a process any longer."""
_GROW_S_MAX = 600.0
"""Longest time for which a ledger on too few bookies is kept although more are back; and a time without trouble."""


class OwnLedger:
    """Write handle of a leader and what the leader wants to know of it.

    Args:
        context: Of the log.
        says: What its ledgers say besides whose they are, as custom metadata.

    Attributes:
        appended_at: Loop time of the last append, or of the creation.

    """

    def __init__(self, context: LedgerContext, says: Mapping[str, bytes] | None = None) -> None:
        self.appended_at = 0.0
        self._context = context
        self._says = says or {}
        self._handle: WriteHandle | None = None
        self._payload_bytes = 0
        self._record_count = 0
        self._created_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._publishing: asyncio.Task[None] | None = None
        self._in_flight: asyncio.Future[int] | None = None
        # Whether the ledger has fewer bookies than wanted; how long the next such one is kept; enough are back.
        self._is_short = False
        self._grow_s = context.settings.grow_s
        self._may_grow = False
        self._growing: asyncio.Task[None] | None = None

    async def create(self, effect: CreateLedger) -> int:
        """Create the next ledger on as many bookies as there are, at least the ack quorum; return its id.

        Waits until it succeeds.
        """
        settings = self._context.settings
        self._stop_publishing()
        self._stop_growing()
        custom = custom_metadata(
            self._context.log, effect.log_id, effect.leader_epoch, effect.previous_ledger_id, effect.key_id
        )
        custom.update(self._says)
        password = settings.ledger_password
        if effect.key_id:
            assert settings.log_keys is not None
            password = settings.log_keys.password(effect.key_id, effect.log_id)
        while True:
            try:
                handle = await self._context.client.create(
                    ensemble_size=settings.ensemble_size,
                    write_quorum=settings.write_quorum,
                    ack_quorum=settings.ack_quorum,
                    password=password,
                    custom=custom,
                    ensemble_min=settings.ack_quorum,
                    rolls=True,
                )
            except LedgerError as error:
                await self._wait(error)
            else:
                break
        now = asyncio.get_running_loop().time()
        self._look_at_size(handle, now)
        self._handle = handle
        self._payload_bytes = self._record_count = 0
        self._created_at = self.appended_at = now
        return handle.ledger_id

    def _look_at_size(self, handle: WriteHandle, now: float) -> None:
        """Look for more bookies from now and then on, if the ledger has fewer than wanted."""
        context, was_short = self._context, self._is_short
        size, wanted = handle.metadata.quorum.ensemble_size, context.settings.ensemble_size
        self._is_short = size < wanted
        if not self._is_short:
            return
        if not was_short and now - self._created_at >= _GROW_S_MAX:
            self._grow_s = context.settings.grow_s
        _LOGGER.warning(
            "ledger %d has %d bookies instead of %d: no more are writable and answer",
            handle.ledger_id,
            size,
            wanted,
            extra=context.log_extra,
        )
        self._growing = asyncio.get_running_loop().create_task(self._look_for_bookies(self._grow_s))
        self._grow_s = min(2 * self._grow_s, _GROW_S_MAX)

    async def _look_for_bookies(self, pause_s: float) -> None:
        """Have the ledger rolled once there are bookies for the wanted ensemble; a bookie that flaps ever later."""
        context = self._context
        while not self._may_grow:
            await asyncio.sleep(pause_s * context.rng.uniform(0.9, 1.1))
            with suppress(LedgerError):
                self._may_grow = await context.client.count_bookies() >= context.settings.ensemble_size

    def _stop_growing(self) -> None:
        self._may_grow = False
        if self._growing is not None:
            self._growing.cancel()
            self._growing = None

    async def _wait(self, error: LedgerError) -> None:
        _LOGGER.warning("no new ledger yet: %s", error, extra=self._context.log_extra)
        await asyncio.sleep(self._context.settings.retry_s * self._context.rng.uniform(0.5, 1.0))

    def append(self, payload: bytes, record_count: int, span: Span | None = None) -> asyncio.Future[int]:
        """Append an entry of so many records; the future is the entry id once acknowledged.

        Args:
            payload: Of the entry.
            record_count: How many.
            span: See `WriteHandle.append_traced`.

        """
        assert self._handle is not None
        self._payload_bytes += len(payload)
        self._record_count += record_count
        self.appended_at = asyncio.get_running_loop().time()
        added = self._handle.append(payload) if span is None else self._handle.append_traced(payload, span)
        self._in_flight = added
        added.add_done_callback(_consume)
        return added

    @property
    def ledger_id(self) -> int:
        """Ledger that is written; -1 = none."""
        return -1 if self._handle is None else self._handle.ledger_id

    def check_fence(self) -> asyncio.Future[bool]:
        """Ask the bookies whether the ledger is fenced, and for a lease; see `WriteHandle.check_fence`."""
        assert self._handle is not None
        return self._handle.check_fence(self._context.settings.read_leases_ms)

    def holds_lease(self) -> bool:
        """Return whether bookies' promises prove that nobody has recovered the ledger until now."""
        return self._handle is not None and self._handle.holds_lease()

    def is_due_for_roll(self, now: float) -> bool:
        """Return whether a new ledger is to follow: this one is big, old, or on fewer bookies than there could be."""
        settings = self._context.settings
        return (
            self._may_grow
            or self._payload_bytes >= settings.roll_bytes
            or now - self._created_at >= settings.roll_s
            or self._record_count >= settings.roll_records
        )

    def publish_soon(self) -> None:
        """Tell followers how far the log is confirmed, unless the next entry does so first."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._context.settings.explicit_lac_s, self._publish)

    def _publish(self) -> None:
        self._timer = None
        if self._handle is None:
            return
        if self._in_flight is not None and not self._in_flight.done():
            self.publish_soon()  # The entry on its way carries it; its own confirmation has to be told then.
            return
        if self._publishing is None or self._publishing.done():
            self._publishing = asyncio.get_running_loop().create_task(self._write_lac(self._handle))

    async def _write_lac(self, handle: WriteHandle) -> None:
        try:
            await handle.write_lac()
        except LedgerError as error:  # Followers learn it from the next entry instead.
            _LOGGER.info("explicit LAC was not written: %s", error, extra=self._context.log_extra)

    async def publish_last(self) -> None:
        """Tell the bookies how far the log is confirmed, if nothing is in flight.

        Perhaps nobody leads after this replica and closes the ledger: a reader still sees all that was acknowledged.
        """
        handle = self._handle
        if handle is None or (self._in_flight is not None and not self._in_flight.done()):
            return
        self._stop_publishing()
        try:
            async with asyncio.timeout(_PUBLISH_LAST_S):
                await self._write_lac(handle)
        except TimeoutError:
            _LOGGER.info("explicit LAC was not written in %g s", _PUBLISH_LAST_S, extra=self._context.log_extra)

    async def close(self) -> tuple[int, int]:
        """Close the ledger, or learn that it is closed; return its last entry id and its length.

        Raises:
            NoSuchLedgerError: It does not exist.
            LedgerError: The end is not known yet; try again.

        """
        self._stop_publishing()
        assert self._handle is not None
        last_entry_id = await self._handle.close()
        return last_entry_id, self._handle.metadata.length

    async def learn_end(self, ledger_id: int) -> Event:
        """Close the ledger, or learn how somebody else has closed it; waits until its end is known."""
        while True:
            try:
                return LedgerEndLearned(*await self.close())
            except NoSuchLedgerError:
                return LedgerGone(ledger_id)
            except LedgerError as error:
                await pause(self._context, f"closing ledger {ledger_id}", error)

    def abandon(self) -> None:
        """Write nothing more; whoever leads next closes the ledger."""
        self._stop_publishing()
        self._stop_growing()
        self._handle = None

    def _stop_publishing(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._publishing is not None:
            self._publishing.cancel()
            self._publishing = None


def _consume(added: asyncio.Future[int]) -> None:
    """Look at the outcome: a leader that stepped down does not."""
    if not added.cancelled():
        added.exception()
