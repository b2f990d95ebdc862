"""`lac-monotonic` for readers of a log: what one of them took for confirmed never goes back, and stays readable by all.

1. On one ledger a reader's LACs, the explicit one and the hint, never fall, and it never returns to an earlier place.
2. An entry at or below an explicit LAC that anybody has seen, or below an end that anybody has seen, is held by an ack
   quorum from then on; the ledger never ends before it; whoever reads it gets the same payload. Until it is deleted.

Header LACs are hints and no floor: a recoverer that is not as careful as ours raises them before the end is final.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from ledger.core.metadata import NO_ENTRY
from rsm_spark.core.position import LogPosition
from rsm_spark.log.commit_log import LogEntry, LogReader
from rsm_spark.testing.ghosts import Ghosts
from rsm_spark.testing.ledger_world import LedgerWorld

__all__ = ["LacWatch"]


class _Seen(NamedTuple):
    """What a reader knew of its ledger when it was looked at last."""

    handle: Any
    explicit_lac: int
    hint: int
    next_entry_id: int


class LacWatch:
    """Judges what readers take for confirmed.

    Args:
        ghosts: Told of what is broken.
        world: The twin of the ledger, if there is one; it is looked at after every event of it.

    """

    def __init__(self, ghosts: Ghosts, world: LedgerWorld | None) -> None:
        self._ghosts = ghosts
        self._world = world
        self._floors: dict[int, int] = {}  # Ledger id -> highest entry that somebody took for confirmed.
        self._payloads: dict[LogPosition, bytes] = {}
        if world is not None:
            world.listeners.append(self._on_ledger)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Look inside the block at every reader after every read."""
        read_some, expose = LogReader._read_some, LogReader._expose

        async def watched_read(reader: LogReader) -> None:
            await read_some(reader)
            self._on_read(reader)

        def watched_expose(reader: LogReader) -> list[LogEntry]:
            exposed = expose(reader)
            self._on_exposed(exposed)
            return exposed

        with patch.object(LogReader, "_read_some", watched_read), patch.object(LogReader, "_expose", watched_expose):
            yield

    def _on_read(self, reader: LogReader) -> None:
        handle = reader._handle
        assert handle is not None
        now = _Seen(handle, reader._explicit_lac, reader._last_add_confirmed, reader._next_entry_id)
        before: _Seen | None = vars(reader).get("seen")
        vars(reader)["seen"] = now
        if before is not None and before.handle is handle:
            if any(after < known for known, after in zip(before[1:], now[1:], strict=True)):
                self._fail(f"a reader of ledger {handle.ledger_id} goes back from {before[1:]} to {now[1:]}")
        ended = handle.metadata.last_entry_id if handle.is_closed else None
        if ended is not None and ended < self._floors.get(handle.ledger_id, NO_ENTRY):
            self._fail(f"ledger {handle.ledger_id} ends at {ended}, {self._floors[handle.ledger_id]} was confirmed")
        self._raise(handle.ledger_id, reader._explicit_lac if ended is None else ended)

    def _on_exposed(self, exposed: list[LogEntry]) -> None:
        for entry in exposed:
            if self._payloads.setdefault(entry.position, entry.payload) != entry.payload:
                self._fail(f"two readers of {entry.position} got different entries")
            self._raise(entry.position.ledger_id, entry.position.entry_id)

    def _raise(self, ledger_id: int, entry_id: int) -> None:
        if entry_id > self._floors.get(ledger_id, NO_ENTRY):
            self._floors[ledger_id] = entry_id
            self._on_ledger("seen", ledger_id, entry_id)

    def _on_ledger(self, _name: str, ledger_id: int, _number: int) -> None:
        """Check one ledger: something has happened to it, or somebody has seen more of it."""
        floor = self._floors.get(ledger_id, NO_ENTRY)
        twin = self._world.ledgers.get(ledger_id) if self._world is not None else None
        if twin is None or floor == NO_ENTRY:
            return
        held = max(twin.stored, twin.kept) - 1
        if floor > held:
            self._fail(f"entry {floor} of ledger {ledger_id} was taken for confirmed, held are those up to {held}")
        if twin.is_closed and twin.metadata.last_entry_id < floor:
            self._fail(f"ledger {ledger_id} ends at {twin.metadata.last_entry_id}, {floor} was confirmed")

    def _fail(self, what: str) -> None:
        self._ghosts.fail("lac-monotonic", what)
