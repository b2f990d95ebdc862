"""Replacing the bookies of an open ledger: carries out what `EnsembleChange` decides, while the writer goes on."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import Final

from ledger.client.placement import Placement
from ledger.client.settings import ClientSettings
from ledger.core.ensemble_change import ChangeFailed, ChangeSettled, EnsembleChange, Verdict
from ledger.core.metadata import LedgerMetadata
from ledger.core.writer import LedgerWriter
from ledger.core.writer_effects import Effect
from ledger.errors import (
    BadVersionError,
    LedgerError,
    MetadataSessionLostError,
    MetadataUnavailableError,
)
from ledger.zookeeper.ledgers import LedgerStore

_LOGGER = logging.getLogger(__name__)

_HOLD_S: Final = 0.25
"""Confirmations wait this long for the metadata store; then they go on by the stricter rule."""
_PAUSE_S: Final = 10.0
"""A bookie that was replaced is taken again only after this long; or if there is no other, unless it refused."""
_RETRY_S_MIN: Final = 0.1
_RETRY_S_MAX: Final = 2.0

_UNANSWERED: Final = (MetadataUnavailableError, MetadataSessionLostError)

CarryOut = Callable[[Sequence[Effect]], None]


class EnsembleChanger:
    """Changes the ensemble of one ledger, for its writer.

    Attributes:
        metadata: Of the ledger, as this writer last wrote them.
        version: Of `metadata`.

    """

    def __init__(
        self,
        ledger_id: int,
        metadata: LedgerMetadata,
        version: int,
        ledgers: LedgerStore,
        placement: Placement,
        rng: random.Random,
        settings: ClientSettings,
    ) -> None:
        self.ledger_id = ledger_id
        self.metadata = metadata
        self.version = version
        self.change_after_s = settings.ensemble_change_after_s
        self._ledgers = ledgers
        self._placement = placement
        self._rng = rng
        # Bookie -> when it was replaced (loop time), and whether because it refused entries.
        self._left: dict[str, tuple[float, bool]] = {}

    async def change(self, core: LedgerWriter, carry_out: CarryOut) -> None:
        """Carry out a `ChangeEnsemble`: until the metadata name another ensemble, or it is clear that they will not."""
        spares, failure = await self._choose_in_time(core)
        wanted = core.positions_to_change(self._now())
        spares = {position: spare for position, spare in spares.items() if position in wanted}
        if not wanted:
            carry_out(core.on_change_dropped())
        elif not spares:
            self._suspect_the_silent(core)
            message = "no bookie to take a failed one's place"
            _LOGGER.warning(message, extra={"ledger": self.ledger_id, "failed": wanted, "reason": failure})
            carry_out(core.on_no_spare(failure, self._now()))
        else:
            await self._publish(core, carry_out, spares, wanted)

    async def _choose_in_time(self, core: LedgerWriter) -> tuple[dict[int, str], str]:
        """Find spares; while the metadata store does not answer, wait for it or for the bookies, whoever is quicker."""
        attempt_count = 0
        while core.failure is None:
            try:
                return await self._choose(core)
            except _UNANSWERED as error:
                attempt_count += 1
                _LOGGER.warning("no list of bookies", extra={"ledger": self.ledger_id, "error": str(error)})
                await self._pause(attempt_count)
            except LedgerError as error:
                return {}, f"the metadata store does not say which bookies are writable ({error})"
        return {}, "the writer has ended"

    async def _choose(self, core: LedgerWriter) -> tuple[dict[int, str], str]:
        """Find a spare for each failed position; those that fail meanwhile are looked at too."""
        spares: dict[int, str] = {}
        tried: set[int] = set()
        while True:
            wanted = core.positions_to_change(self._now())
            position = next((position for position in wanted if position not in tried), None)
            if position is None:
                return spares, "all other writable bookies are in the ensemble, have refused lately, or do not answer"
            tried.add(position)
            spare = await self._spare(core, position, spares)
            if spare is not None:
                spares[position] = spare

    async def _spare(self, core: LedgerWriter, position: int, spares: dict[int, str]) -> str | None:
        ensemble = [spares.get(place, bookie_id) for place, bookie_id in enumerate(core.bookies)]
        now = self._now()
        pausing = [bookie_id for bookie_id, (left_at, _) in self._left.items() if now - left_at < _PAUSE_S]
        refusing = [bookie_id for bookie_id in pausing if self._left[bookie_id][1]]
        for excluded in [pausing, refusing] if len(refusing) < len(pausing) else [pausing]:
            spare = await self._placement.replacement(
                position, ensemble, [*core.bookies, *excluded], core.quorum.write_quorum
            )
            if spare is not None:
                return spare
        return None

    async def _publish(
        self, core: LedgerWriter, carry_out: CarryOut, spares: dict[int, str], reasons: dict[int, str]
    ) -> None:
        change = EnsembleChange(self.ledger_id, self.metadata, self.version, spares)
        attempt_count = 0
        while core.failure is None:
            attempt_count += 1
            verdict = await self._attempt(change, core, carry_out, spares)
            if isinstance(verdict, ChangeFailed):
                carry_out(core.freeze(verdict.error))
            elif isinstance(verdict, ChangeSettled):
                self._settle(verdict, core, spares, reasons)
                carry_out(core.on_ensemble_changed(change.bookies))
                return
            else:
                await self._pause(attempt_count)

    async def _attempt(
        self, change: EnsembleChange, core: LedgerWriter, carry_out: CarryOut, spares: dict[int, str]
    ) -> Verdict:
        """Write once, and read again if there was no clear answer."""
        write = change.propose(core.hold(spares))
        release = asyncio.get_running_loop().call_later(_HOLD_S, lambda: carry_out(core.release()))
        try:
            try:
                version = await self._ledgers.write(self.ledger_id, write.metadata, write.version)
            except BadVersionError as error:
                _LOGGER.info(
                    "ensemble change was not written, another one came first",
                    extra={"ledger": self.ledger_id, "error": str(error)},
                )
            except _UNANSWERED as error:
                carry_out(core.release())
                _LOGGER.warning(
                    "it is not known whether the ensemble change was written",
                    extra={"ledger": self.ledger_id, "error": str(error)},
                )
            else:
                return change.on_written(write, version, core.last_stored)
            return await self._judge(change, core, carry_out)
        except LedgerError as error:  # deleted, or not to be read
            return ChangeFailed(error)
        finally:
            release.cancel()

    async def _judge(self, change: EnsembleChange, core: LedgerWriter, carry_out: CarryOut) -> Verdict:
        attempt_count = 0
        while True:
            attempt_count += 1
            try:
                found, version = await self._ledgers.read(self.ledger_id, sync=True)
            except _UNANSWERED:
                carry_out(core.release())
                await self._pause(attempt_count)
            else:
                return change.on_read(found, version, core.last_stored)

    def _settle(
        self, settled: ChangeSettled, core: LedgerWriter, spares: dict[int, str], reasons: dict[int, str]
    ) -> None:
        self.metadata, self.version = settled.metadata, settled.version
        self._suspect_the_silent(core)
        now = self._now()
        for position in spares:
            self._left[core.bookies[position]] = (now, core.has_refused(position))
        _LOGGER.warning(
            "bookies replaced",
            extra={
                "ledger": self.ledger_id,
                "first_entry": settled.metadata.segments[-1].first_entry_id,
                "replaced": {
                    core.bookies[position]: f"{spares[position]} ({reasons[position]})" for position in spares
                },
            },
        )

    def _suspect_the_silent(self, core: LedgerWriter) -> None:
        """Keep silent bookies out of new ensembles for a while; those that failed are suspects already."""
        for position, bookie_id in enumerate(core.bookies):
            if core.is_silent(position):
                self._placement.suspect(bookie_id)

    async def _pause(self, attempt_count: int) -> None:
        delay_s = min(_RETRY_S_MAX, _RETRY_S_MIN * 2.0 ** min(attempt_count - 1, 10))
        await asyncio.sleep(delay_s * self._rng.uniform(0.5, 1.0))

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
