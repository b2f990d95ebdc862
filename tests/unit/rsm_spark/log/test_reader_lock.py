"""A reader's lock is let go of also when the metadata store did not answer just then; in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from ledger.errors import MetadataUnavailableError
from ledger.testing.loop import SimLoop
from ledger.testing.metadata import SimMetadata
from ledger.testing.network import SimNetwork
from rsm_spark.log.reader_lock import ReaderLock, ReaderLockError

_LOG_ID = "0" * 32


def test_a_lock_that_could_not_be_let_go_of_is_free_once_the_store_answers() -> None:
    loop = SimLoop(1)  # type: ignore[abstract]
    metadata = SimMetadata(loop, SimNetwork(loop))

    async def scenario() -> None:
        session = await metadata.connect(session_timeout_ms=60_000)
        held = ReaderLock(session, _LOG_ID, "daily")
        await held.acquire(0.0)
        with pytest.raises(ReaderLockError, match="reads under this name"):
            await ReaderLock(session, _LOG_ID, "daily").acquire(0.0)
        metadata.set_available(False)
        with pytest.raises(MetadataUnavailableError):
            await session.sync("/")
        await held.release()
        with pytest.raises(MetadataUnavailableError):
            await ReaderLock(session, _LOG_ID, "daily").acquire(0.0)
        metadata.set_available(True)
        again = ReaderLock(session, _LOG_ID, "daily")
        await again.acquire(60.0)
        await again.release()
        # One that lets go late does not let go of another reader's.
        await ReaderLock(session, _LOG_ID, "daily").acquire(0.0)
        await asyncio.sleep(10.0)
        with pytest.raises(ReaderLockError):
            await ReaderLock(session, _LOG_ID, "daily").acquire(0.0)

    loop.run(scenario(), limit_s=1_000)
