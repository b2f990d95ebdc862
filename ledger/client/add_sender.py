"""Entries of one writer on their way: sealed, sent by the batch, and kept until they need not be sent again."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ledger.client.add_runs import AddBatch
from ledger.client.connection import Asker
from ledger.client.ensemble_links import EnsembleLinks
from ledger.client.pool import ConnectionPool
from ledger.core.quorum import QuorumConfig, write_set
from ledger.core.writer_effects import ResendEntries, SendEntries
from ledger.wire.protocol import BatchEncoder

__all__ = ["AddSender"]


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
        # Invariant: exactly the pending entries of the core, while it is not frozen.
        self._sent: deque[tuple[bytes, bytes] | None] = deque()
        self._first = 0

    def send(self, effect: SendEntries, payloads: Sequence[bytes]) -> None:
        """Seal payloads under consecutive ids and send them to the positions that are live."""
        first = effect.first_entry_id
        first_txn = self._pool.take_txns(len(payloads))
        heads, answers = self._encoder.heads(first_txn, first, effect.last_add_confirmed, effect.lengths, payloads)
        entry_ids = range(first, first + len(payloads))
        if first == self._first + len(self._sent):
            self._sent.extend(zip(heads, payloads, strict=True))
        else:
            self._fill(first, list(zip(heads, payloads, strict=True)))
        if not self._is_striped:
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
        for number, entry_id in enumerate(effect.entry_ids, first_txn):
            kept = sent[entry_id - first]
            assert kept is not None
            sealed_head, payload = kept
            head, answer = self._encoder.again(number, entry_id, sealed_head, payload)
            parts += (head, payload)
            answers.append(answer)
        batch = AddBatch(self._asker, self._ledger_id, effect.entry_ids, answers)
        self._links.send(effect.position, b"".join(parts), batch)

    def forget(self, last_entry_id: int) -> None:
        """Let go of the entries up to this one (inclusive): they need not be sent again."""
        forget = self._sent.popleft
        count = last_entry_id + 1 - self._first
        for _ in range(count):
            forget()
        self._first += max(0, count)

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
