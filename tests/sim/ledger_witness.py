"""Watches from inside, while code under test runs: bookies' words, cores' invariants, what the metadata hold.

* `unknown-is-not-absent`  what a bookie acknowledged once it may not deny later, whatever it lost
* `validate`               the invariants of every core hold after every event that it took
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from ledger.bookie import handlers
from ledger.bookie.responder import failed_read
from ledger.client.deferred_handle import DeferredWriteHandle
from ledger.client.write_handle import WriteHandle
from ledger.core.adv_writer import AdvLedgerWriter
from ledger.core.deferred_writer import DeferredLedgerWriter
from ledger.core.metadata import LedgerMetadata
from ledger.core.recovery import Recovery
from ledger.core.writer import LedgerWriter
from ledger.storage.bookie_ledger import BookieLedger
from ledger.testing import SimMetadata, current_process
from ledger.testing.metadata_tree import TreeWrite
from ledger.wire import frames
from ledger.wire.codes import Status
from ledger.wire.metadata_format import decode_metadata
from ledger.wire.paths import ledger_id_of
from tests.sim.ledger_history import History

__all__ = ["watch_metadata", "witnessed"]

_CORES: tuple[tuple[type, str], ...] = (
    (LedgerWriter, "on_"),
    (LedgerWriter, "append"),
    (AdvLedgerWriter, "on_"),
    (AdvLedgerWriter, "append"),
    (DeferredLedgerWriter, "on_"),
    (DeferredLedgerWriter, "append"),
    (Recovery, "on_"),
    (BookieLedger, "take_"),
)
"""Core, and what the names of its events begin with."""
_BUFFER_BYTES = 64 << 10
"""The product's receive buffers of 1 MiB take a tenth of a run to fill with zeros."""


def watch_metadata(history: History, metadata: SimMetadata, root: str) -> None:
    """Tell the history what the metadata store holds of each ledger, when it is committed."""
    held: dict[int, LedgerMetadata] = {}

    def on_change(change: TreeWrite) -> None:
        ledger_id = ledger_id_of(change.path, root)
        if ledger_id is None:
            return
        if change.node is None:
            held.pop(ledger_id, None)
            history.deleted(ledger_id)
            return
        after = decode_metadata(change.node.value, ledger_id=ledger_id)
        history.written(ledger_id, held.get(ledger_id), after)
        held[ledger_id] = after

    metadata.on_change.append(on_change)


@contextmanager
def witnessed(history: History) -> Iterator[None]:
    """Check inside the block what is named above: simulated time orders an acknowledgement and a denial."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(frames, "_BUFFER_BYTES", _BUFFER_BYTES))
        _watch_words(history, stack)
        inside: list[object] = []
        for core, prefix in _CORES:
            for name in [name for name in vars(core) if name.startswith(prefix)]:
                stack.enter_context(patch.object(core, name, _validating(history, core, name, inside)))
        yield


def _watch_words(history: History, stack: ExitStack) -> None:
    # (host, ledger) -> entries that its writer was told are stored there.
    stored: dict[tuple[str, int], set[int]] = defaultdict(set)
    on_stored = WriteHandle.on_stored

    def note_stored(self: WriteHandle, bookie_id: str, tokens: list[Any]) -> None:
        if not isinstance(self, DeferredWriteHandle):
            stored[bookie_id.partition(":")[0], self.ledger_id].update(tokens)
        on_stored(self, bookie_id, tokens)

    def check_denial(request: Any, status: Status) -> Any:
        process = current_process()
        if process is not None and status in (Status.ENOENTRY, Status.ENOLEDGER):
            held = stored.get((process.name, request.ledger_id), set())
            ledger = history.ledgers.get(request.ledger_id)
            end = history.ends.get(request.ledger_id)  # What lies behind it is nobody's entry any more.
            is_owed = request.entry_id in held and (end is None or request.entry_id <= end)
            if is_owed and ledger is not None and not ledger.is_deleted:
                history.fail(
                    "unknown-is-not-absent",
                    f"{process.name} answers {status.name} for entry {request.entry_id} of ledger {request.ledger_id}, "
                    "which it acknowledged",
                )
        return failed_read(request, status)

    stack.enter_context(patch.object(WriteHandle, "on_stored", note_stored))
    stack.enter_context(patch.object(handlers, "failed_read", check_denial))


def _validating(history: History, core: type, name: str, inside: list[object]) -> Callable[..., Any]:
    """Wrap an event of a core; within another event of the same object it is half of one."""
    take = getattr(core, name)

    def validated(self: Any, *arguments: Any, **options: Any) -> Any:
        if any(other is self for other in inside):
            return take(self, *arguments, **options)
        inside.append(self)
        try:
            result = take(self, *arguments, **options)
        finally:
            inside.pop()
        try:
            self.validate()
        except AssertionError as error:
            history.fail("validate", f"{core.__name__}.{name} of ledger {self.ledger_id}: {error!r}")
        return result

    return validated
