"""Parts of a client session's row: one per range of the log, added up to the whole row.

A part is written as the session's row is (`rsm_spark.core.records.SESSIONS_TABLE`): ``[opened_ms, last_ms,
answered_up_to, last_sequence, [[sequence, reply], …]]``, with nil for `opened_ms` where the session was open before.
So a row of a snapshot is a part too, and a part that begins with an opening is a row. No part (None) is an end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from rsm_spark.core.records import CommandHead, pack
from rsm_spark.errors import CorruptLogError

_HEADS_HELD_MAX: Final = 4096
_PART = msgspec.msgpack.Decoder(tuple[int | None, int, int, int, list[tuple[int, bytes]]])


def session_key(session: bytes) -> bytes:
    """Return the canonical key of a session's row."""
    return pack((session,))


class SessionPart:
    """One session while a range is read.

    Attributes:
        revision: Of the last record that says something of it.

    """

    __slots__ = ("_answered", "_heads", "_last_ms", "_opened_ms", "_replies", "_sequence", "revision")

    def __init__(self, opened_ms: int | None, last_ms: int, revision: int) -> None:
        self._opened_ms = opened_ms
        self._last_ms = last_ms
        self._answered = 0
        self._sequence = 0
        self._replies: dict[int, bytes] = {}
        # Heads that the three above do not know of yet.
        self._heads: list[CommandHead] = []
        self.revision = revision

    def answer(self, heads: Sequence[CommandHead], logged_ms: int, revision: int) -> None:
        """Take in the heads of commands; there must be one.

        Args:
            heads: In the order of the log.
            logged_ms: When they were logged.
            revision: Of the last one's record.

        """
        self._heads += heads
        self._last_ms = logged_ms
        self.revision = revision
        if len(self._heads) > _HEADS_HELD_MAX:
            self._settle()

    def _settle(self) -> None:
        """Take the replies of the heads that are held, those that the client did not have at their end."""
        heads, self._heads = self._heads, []
        answered = [head.answered_up_to for head in heads]
        upto, begin = max(answered), 0
        if upto > self._answered:
            # With this head all replies before it are forgotten that the client has; later ones rise no further.
            begin, self._answered = answered.index(upto), upto
            self._replies = {number: reply for number, reply in self._replies.items() if number > upto}
            self._replies.update((head.sequence, head.reply) for head in heads[:begin] if head.sequence > upto)
        self._replies.update((head.sequence, head.reply) for head in heads[begin:])
        self._sequence = heads[-1].sequence

    def packed(self) -> bytes:
        """Return the part as bytes."""
        if self._heads:
            self._settle()
        replies = sorted(self._replies.items())
        return pack((self._opened_ms, self._last_ms, self._answered, self._sequence, replies))


def merge_parts(parts: Iterable[bytes | None]) -> bytes | None:
    """Return the row that parts come to, in the order of the log; None = the session is not open (any more).

    Raises:
        CorruptLogError: A session goes on that was never opened.

    """
    merged: tuple[int | None, int, int, int, dict[int, bytes]] | None = None
    for part in parts:
        if part is None:
            merged = None
            continue
        opened, last_ms, answered, sequence, replies = _PART.decode(part)
        if opened is None:
            if merged is None:
                raise CorruptLogError("a client session goes on that is not open")
            opened, _, answered_before, sequence_before, kept = merged
            answered, sequence = max(answered, answered_before), max(sequence, sequence_before)
            replies = [(number, reply) for number, reply in kept.items() if number > answered] + replies
        merged = (opened, last_ms, answered, sequence, dict(replies))
    if merged is None:
        return None
    opened, last_ms, answered, sequence, found = merged
    return pack((opened, last_ms, answered, sequence, sorted(found.items())))


def is_whole(part: bytes) -> bool:
    """Return whether a part begins with an opening, so that what was before does not matter."""
    return _PART.decode(part)[0] is not None
