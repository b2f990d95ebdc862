"""A writer as a process: appends until it is killed, and says on its output what was acknowledged.

    python -m tests.integration.writer_process METADATA_URI [ENSEMBLE WRITE_QUORUM ACK_QUORUM]

Lines: ``ledger L`` before the first entry of a ledger, ``acked L E`` whenever everything up to E is acknowledged. A
handle that fails is closed and a new ledger is begun, as a replicated log does. It ends by itself after ten minutes.
"""

from __future__ import annotations

import asyncio
import sys

from ledger import LedgerClient, WriteHandle
from ledger.errors import LedgerError

_LIFE_S = 600.0
_WAVE = 20
_PAUSE_S = 0.005
_RETRY_S = 0.2


def payload_of(ledger_id: int, entry_id: int) -> bytes:
    """Return what the writer puts into an entry: anybody can check it."""
    text = b"%d/%d;" % (ledger_id, entry_id)
    return text * (1 + (ledger_id + entry_id) % 40)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def _write(handle: WriteHandle) -> None:
    """Append waves, two under way at a time, until the handle fails."""
    ledger_id, first = handle.ledger_id, 0
    _say(f"ledger {ledger_id}")
    earlier: asyncio.Future[int] | None = None
    while True:
        wave = handle.append_many([payload_of(ledger_id, first + i) for i in range(_WAVE)])
        first += _WAVE
        if earlier is not None:
            _say(f"acked {ledger_id} {await earlier}")
        earlier = wave
        await asyncio.sleep(_PAUSE_S)


async def main(metadata_uri: str, *quorum: int) -> None:
    ensemble, write_quorum, ack_quorum = quorum or (3, 3, 2)
    async with await LedgerClient.connect(metadata_uri) as client:
        while True:
            try:
                handle = await client.create(ensemble_size=ensemble, write_quorum=write_quorum, ack_quorum=ack_quorum)
                await _write(handle)
            except LedgerError as error:
                _say(f"failed {type(error).__name__}: {error}")
                await asyncio.sleep(_RETRY_S)


if __name__ == "__main__":
    try:
        asyncio.run(asyncio.wait_for(main(sys.argv[1], *map(int, sys.argv[2:])), _LIFE_S))
    except TimeoutError:
        _say("over")
