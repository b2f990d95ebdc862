"""Watches every bookie's word from inside: what it acknowledged once it may not deny later, whatever it lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from ledger.bookie import handlers
from ledger.client.write_handle import WriteHandle
from ledger.testing import current_process
from ledger.wire.codes import Status
from tests.sim.ledger_history import History

__all__ = ["witnessed"]


@contextmanager
def witnessed(history: History) -> Iterator[None]:
    """Check `unknown-is-not-absent` inside the block: simulated time orders an acknowledgement and a denial."""
    # (host, ledger) -> entries that its writer was told are stored there.
    stored: dict[tuple[str, int], set[int]] = defaultdict(set)
    on_stored, failed_read = WriteHandle.on_stored, handlers.failed_read

    def note_stored(self: WriteHandle, bookie_id: str, tokens: list[Any]) -> None:
        stored[bookie_id.partition(":")[0], self.ledger_id].update(tokens)
        on_stored(self, bookie_id, tokens)

    def check_denial(request: Any, status: Status) -> Any:
        process = current_process()
        if process is not None and status in (Status.ENOENTRY, Status.ENOLEDGER):
            held = stored.get((process.name, request.ledger_id), set())
            if request.entry_id in held:
                history.fail(
                    "unknown-is-not-absent",
                    f"{process.name} answers {status.name} for entry {request.entry_id} of ledger {request.ledger_id}, "
                    "which it acknowledged",
                )
        return failed_read(request, status)

    with patch.object(WriteHandle, "on_stored", note_stored), patch.object(handlers, "failed_read", check_denial):
        yield
