"""Entries of one writer on their way: sealed, sent by the batch, and kept until they need not be sent again."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from ledger.client.add_runs import AddBatch
from ledger.client.ensemble_links import EnsembleLinks
from ledger.client.in_flight import Asker
from ledger.client.pool import ConnectionPool
from ledger.core.quorum import QuorumConfig, write_set
from ledger.core.writer_effects import ResendEntries, SendEntries
from ledger.telemetry.trace_context import TRACEPARENT, TraceContext
from ledger.wire.add_batch import request_context
from ledger.wire.protocol import BatchEncoder

_KEPT_BYTES_MAX: Final = 8 * 1024 * 1024
"""Confirmed payloads that are kept for bookies that have not answered for them; beyond it, the oldest go."""


class AddSender:
    """Seals payloads and sends them to their write sets.

    Args:
        asker: Gets the answers; the token of a request is its entry id.
        ledger_id: The ledger.
        pool: Gives transaction numbers.
        links: The ensemble.
        quorum: Of the ledger.
        encoder: Of the ledger.

    """

    def __init__(
        self,
        asker: Asker,
        ledger_id: int,
        pool: ConnectionPool,
        links: EnsembleLinks,
        quorum: QuorumConfig,
        encoder: BatchEncoder,
    ) -> None:
        self._asker = asker
        self._ledger_id = ledger_id
        self._pool = pool
        self._links = links
        self._quorum = quorum
        self._encoder = encoder
        self._is_striped = quorum.write_quorum < quorum.ensemble_size
        # (request head, payload) of the entries from _first on, without a gap; None: not given yet (explicit ids).
        # Invariant: the pending entries of the core, while it is not frozen, and before them some confirmed ones that
        # not all bookies have answered for.
        self._sent: deque[tuple[bytes, bytes] | None] = deque()
        self._first = 0
        # Payload bytes of those below _first.
        self._gone_bytes = 0

    def send(self, effect: SendEntries, payloads: Sequence[bytes], trace: TraceContext | None = None) -> None:
        """Seal payloads under consecutive ids and send them to the positions that are live.

        Args:
            effect: Names the ids.
            payloads: One each.
            trace: Span that they belong to; bookies that trace add theirs.

        """
        first = effect.first_entry_id
        first_txn = self._pool.take_txns(len(payloads))
        context = b"" if trace is None else request_context(TRACEPARENT, trace.traceparent)
        last_add_confirmed, lengths = effect.last_add_confirmed, effect.lengths
        heads, answers = self._encoder.heads(first_txn, first, last_add_confirmed, lengths, payloads, context)
        entry_ids = range(first, first + len(payloads))
        if first == self._first + len(self._sent):
            self._sent.extend(zip(heads, payloads, strict=True))
        else:
            self._fill(first, list(zip(heads, payloads, strict=True)))
        if not self._is_striped:
            # Joined once for all bookies: each gets the same bytes.
            data = b"".join([part for pair in zip(heads, payloads, strict=True) for part in pair])
            self._links.send_to_all(data, AddBatch(self._asker, self._ledger_id, entry_ids, answers))
            return
        by_position: list[tuple[list[bytes], list[int], list[bytes]]] = [
            ([], [], []) for _ in range(self._quorum.ensemble_size)
        ]
        for entry_id, answer, head, payload in zip(entry_ids, answers, heads, payloads, strict=True):
            for position in write_set(entry_id, self._quorum):
                parts, stored_ids, stored = by_position[position]
                parts += (head, payload)
                stored_ids.append(entry_id)
                stored.append(answer)
        for position, (parts, stored_ids, stored) in enumerate(by_position):
            if stored_ids and self._links.is_live(position):
                batch = AddBatch(self._asker, self._ledger_id, stored_ids, stored)
                self._links.send(position, b"".join(parts), batch)

    def resend(self, effect: ResendEntries) -> None:
        """Send entries to one position again, the sealed bytes unchanged."""
        first_txn = self._pool.take_txns(len(effect.entry_ids))
        parts: list[bytes] = []
        answers: list[bytes] = []
        sent, first = list(self._sent), self._first
        entry_ids = effect.entry_ids
        if entry_ids[0] < first:
            entry_ids = [entry_id for entry_id in entry_ids if entry_id >= first]
        for number, entry_id in enumerate(entry_ids, first_txn):
            kept = sent[entry_id - first]
            assert kept is not None
            sealed_head, payload = kept
            head, answer = self._encoder.again(number, entry_id, sealed_head, payload)
            parts += (head, payload)
            answers.append(answer)
        if entry_ids:
            batch = AddBatch(self._asker, self._ledger_id, entry_ids, answers)
            self._links.send(effect.position, b"".join(parts), batch)

    def trim(self, stored_length: int, keep_from: int, last_stored: int) -> None:
        """Let go of confirmed entries that all bookies have answered for, and of more if they take too much room.

        Args:
            stored_length: Payload bytes of all confirmed entries, those that are gone too.
            keep_from: The first entry that a bookie may still need.
            last_stored: The last entry confirmed.

        """
        kept_bytes = stored_length - self._gone_bytes
        sent, first = self._sent, self._first
        while first < keep_from or (kept_bytes > _KEPT_BYTES_MAX and first <= last_stored):
            kept = sent.popleft()
            assert kept is not None
            kept_bytes -= len(kept[1])
            first += 1
        self._first = first
        self._gone_bytes = stored_length - kept_bytes

    def clear(self) -> None:
        """Let go of all entries: the writer is frozen."""
        self._first += len(self._sent)
        self._sent.clear()

    def _fill(self, first_entry_id: int, sent: Sequence[tuple[bytes, bytes]]) -> None:
        """Keep entries that do not follow the last one."""
        end = first_entry_id + len(sent)
        self._sent.extend([None] * (end - self._first - len(self._sent)))
        for index, kept in enumerate(sent, first_entry_id - self._first):
            self._sent[index] = kept
