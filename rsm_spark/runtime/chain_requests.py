"""Requests of whoever leads a log to its chain and its last ledger; they wait out what may succeed later."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any, Protocol

from ledger.client.client import LedgerClient
from ledger.errors import BadVersionError, LedgerError, MetadataError, NoSuchLedgerError, UsageError
from rsm_spark.core.leadership import LeaderProtocol
from rsm_spark.core.leadership_events import (
    ChainRead,
    ChainWriteFailed,
    ChainWritten,
    Event,
    LedgerGone,
    LedgerRecovered,
)
from rsm_spark.core.seal import ledger_password
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.runtime.settings import ReplicaSettings

_LOGGER = logging.getLogger(__name__)


class LedgerContext(Protocol):
    """Context of the ledgers of one log: that of a replica, or of the writer of a plain log.

    Attributes:
        log: Name of the log.
        client: Of the ledgers; a twin of it in simulations.
        chains: Chain of the log.
        settings: Quorums, passwords, limits.
        rng: For back-off.

    """

    log: str
    client: LedgerClient
    chains: ChainStore
    settings: ReplicaSettings
    rng: random.Random

    @property
    def log_extra(self) -> dict[str, Any]:
        """Fields that every line about this log carries."""
        ...


async def pause(context: LedgerContext, doing: str, error: LedgerError) -> None:
    """Wait before the same is tried again."""
    _LOGGER.warning("%s has to wait: %s", doing, error, extra=context.log_extra)
    await asyncio.sleep(context.settings.retry_s * context.rng.uniform(0.5, 1.0))


class ChainRequests:
    """The steps of a take-over that every kind of log has; chain reads and writes go on to be made by it.

    Args:
        context: Of the log.
        protocol: The decisions.

    """

    def __init__(self, context: LedgerContext, protocol: LeaderProtocol) -> None:
        self._steps_context = context
        self._protocol = protocol

    async def read_chain(self) -> Event:
        """Read the chain; waits until the metadata store answers."""
        while True:
            try:
                return ChainRead(*await self._steps_context.chains.read_bytes())
            except MetadataError as error:
                await pause(self._steps_context, "reading the chain", error)

    async def write_chain(self, value: bytes, held_version: int) -> Event:
        """Write the chain, once."""
        try:
            return ChainWritten(await self._steps_context.chains.write(value, held_version))
        except BadVersionError:
            return ChainWriteFailed()
        except MetadataError as error:
            await pause(self._steps_context, "writing the chain", error)
            return ChainWriteFailed()

    async def recover(self, ledger_id: int) -> Event:
        """Make the end of a ledger final and learn it; waits until enough bookies answer."""
        context = self._steps_context
        while True:
            try:
                handle = await context.client.open(ledger_id, password=self._password(ledger_id))
            except NoSuchLedgerError:
                return LedgerGone(ledger_id)
            except UsageError:
                raise
            except LedgerError as error:
                await pause(context, f"recovering ledger {ledger_id}", error)
            else:
                metadata = handle.metadata
                await handle.close()
                return LedgerRecovered(ledger_id, metadata.last_entry_id, metadata.length)

    def _password(self, ledger_id: int) -> bytes:
        chain, settings = self._protocol.chain, self._steps_context.settings
        assert chain is not None
        password = ledger_password(chain, ledger_id, settings.log_keys, settings.ledger_password)
        assert password is not None, "who has not the key was not admitted"
        return password
