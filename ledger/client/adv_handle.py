"""The writing end of a ledger whose entry ids the application chooses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ledger.client.write_handle import WriteHandle
from ledger.core.adv_writer import AdvLedgerWriter
from ledger.core.writer_effects import SendEntries
from ledger.errors import UsageError


class AdvWriteHandle(WriteHandle):
    """The only writer of one ledger with explicit entry ids (`LedgerClient.create_adv`); else a `WriteHandle`.

    Entries may be appended in any order; each is confirmed once all entries before it are. `flush` and `close` wait
    for what lies below the first id that was not given; `close` ends the ledger there, and fails what lies above.
    """

    _core: AdvLedgerWriter
    _core_type = AdvLedgerWriter

    def append(self, payload: bytes) -> asyncio.Future[int]:  # noqa: ARG002
        """Refuse: use `append_at`.

        Raises:
            UsageError: Always.

        """
        raise UsageError(
            f"ledger {self.ledger_id} was created for explicit entry ids: use append_at", ledger_id=self.ledger_id
        )

    def append_many(self, payloads: Sequence[bytes]) -> asyncio.Future[int]:
        """Refuse: use `append_at`.

        Raises:
            UsageError: Always.

        """
        return self.append(payloads[0] if payloads else b"")

    def append_at(self, entry_id: int, payload: bytes) -> asyncio.Future[int]:
        """Append one entry under this id; the future gives the id when it and all entries before it are confirmed.

        Raises:
            EntryTooLargeError: The payload does not fit an entry; nothing was changed.
            UsageError: The id was given before, or is too far ahead of the last confirmed entry; or far more is in
                flight than `in_flight_bytes_max`: `await drain()`. Nothing was changed.

        """
        self._check((payload,))
        if self._core.failure is None:
            self._core.check(entry_id)
            if entry_id in self._queued_ids:
                raise UsageError(
                    f"ledger {self.ledger_id}: entry {entry_id} cannot be appended: every id is given once",
                    ledger_id=self.ledger_id,
                )
            self._queued_ids[entry_id] = None
        return self._enqueue((payload,))

    def _push(self, queue: list[tuple[Sequence[bytes], asyncio.Future[int]]]) -> None:
        entry_ids = list(self._queued_ids)
        self._queued_ids.clear()
        payloads = {entry_id: batch[0] for entry_id, (batch, _) in zip(entry_ids, queue, strict=True)}
        for entry_id, (_, future) in zip(entry_ids, queue, strict=True):
            self._insert(entry_id, future)
        for effect in self._core.append_at(entry_ids, [len(payload) for payload in payloads.values()]):
            if isinstance(effect, SendEntries):
                first = effect.first_entry_id
                self._sender.send(effect, [payloads[first + index] for index in range(len(effect.lengths))])
            else:
                self._carry_out([effect])
