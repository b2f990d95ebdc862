"""Client sessions: which commands were answered, and how. Part of the replicated state.

1. A command (session, sequence) is executed once; sent again it gets the same reply, on every leader.
2. Sequences run 1, 2, 3, …; a gap is refused, unless its commands were given up (`answered_up_to`): they are then
   never executed, however late they arrive.
3. A reply is forgotten once its client has it; a client that takes none is told to slow down (`REPLIES_MAX`).
4. A session ends only by a logged record, and never before its full time under the present leader.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from enum import Enum
from itertools import takewhile

import msgspec

from ledger.decoding import msgpack_decoder
from rsm_spark.core.machine import Row
from rsm_spark.core.records import SESSIONS_TABLE, CommandHead, pack
from rsm_spark.errors import CorruptLogError, CorruptSnapshotError

_ROW = msgspec.msgpack.Decoder(tuple[int, int, int, int, list[tuple[int, bytes]]])

REPLIES_MAX = 16_384
"""Replies kept for one session: several times what a client has under way. They are in the state, in every snapshot,
and are hashed whenever the session is written."""

TOO_LARGE_REPLY = b"\xc1too large"
"""Logged in place of a reply when a command's records or reply exceed their limit; no msgpack begins with 0xC1."""


class SessionVerdict(Enum):
    """Verdict of the sessions on a command.

    EXECUTE: it is the session's next. REPEATED: it was executed, here is its reply. FORGOTTEN: it was executed or
    given up, its reply is gone. GAP: an earlier one is missing. EXPIRED: there is no such session. FULL: it is the
    next, but the client has taken none of many replies.
    """

    EXECUTE = "execute"
    REPEATED = "repeated"
    FORGOTTEN = "forgotten"
    GAP = "gap"
    EXPIRED = "expired"
    FULL = "full"


_NEXT = SessionVerdict.EXECUTE, b""


class ClientSession:
    """One session.

    Attributes:
        opened_ms: Logged time of its opening.
        last_ms: Logged time of its last command.
        answered_up_to: Replies up to here are forgotten.
        last_sequence: Highest sequence executed or given up.
        replies: By sequence, ascending. Invariant: answered_up_to < sequence <= last_sequence.
        revision: Of the record that last wrote it.

    """

    __slots__ = ("answered_up_to", "last_ms", "last_sequence", "opened_ms", "replies", "revision")

    def __init__(self, opened_ms: int, last_ms: int, answered_up_to: int, last_sequence: int) -> None:
        self.opened_ms = opened_ms
        self.last_ms = last_ms
        self.answered_up_to = answered_up_to
        self.last_sequence = last_sequence
        self.replies: dict[int, bytes] = {}
        self.revision = 0

    def row(self) -> bytes:
        """Return the canonical bytes of its row."""
        return pack((self.opened_ms, self.last_ms, self.answered_up_to, self.last_sequence, list(self.replies.items())))


class SessionTable:
    """All sessions.

    `touched` remembers what was written since `take_changes`, so that a row counts once per entry in the digest,
    however many commands of the session the entry carries.
    """

    def __init__(self) -> None:
        # Ordered by last_ms, oldest first: expiry looks at the front only.
        self._sessions: OrderedDict[bytes, ClientSession] = OrderedDict()
        # (row, revision) as the digest knows them. Invariant: those of every session that is not touched. A snapshot is
        # a copy of this one dict: a hundred thousand sessions are frozen within milliseconds.
        self._digested: dict[bytes, tuple[bytes, int]] = {}
        self._touched: dict[bytes, None] = {}

    def __len__(self) -> int:
        """Return how many sessions are open."""
        return len(self._sessions)

    def get(self, session: bytes) -> ClientSession | None:
        """Return a session, or None if it is not open."""
        return self._sessions.get(session)

    def judge(self, session: bytes, sequence: int, answered_up_to: int) -> tuple[SessionVerdict, bytes]:
        """Say what is to be done with a command; the bytes are its logged reply when REPEATED."""
        known = self._sessions.get(session)
        if known is None:
            return SessionVerdict.EXPIRED, b""
        last = known.last_sequence
        if sequence == last + 1 and answered_up_to <= last and len(known.replies) < REPLIES_MAX:
            return _NEXT  # As nearly all are; what is below says the same of it.
        if sequence <= last:
            reply = known.replies.get(sequence)
            return (SessionVerdict.FORGOTTEN, b"") if reply is None else (SessionVerdict.REPEATED, reply)
        if answered_up_to >= sequence or sequence < 1:
            return SessionVerdict.GAP, b""
        if sequence != max(answered_up_to, last) + 1:
            return SessionVerdict.GAP, b""
        if len(known.replies) >= REPLIES_MAX and answered_up_to <= known.answered_up_to:
            return SessionVerdict.FULL, b""
        return _NEXT

    def open(self, session: bytes, logged_ms: int, revision: int) -> None:
        """Fold SESSION_OPENED.

        Raises:
            CorruptLogError: It is open already.

        """
        if session in self._sessions:
            raise CorruptLogError(f"revision {revision} opens session {session.hex()}, which is open")
        opened = self._sessions[session] = ClientSession(logged_ms, logged_ms, 0, 0)
        opened.revision = revision
        self._touched[session] = None

    def expire(self, session: bytes, revision: int) -> None:
        """Fold SESSION_EXPIRED.

        Raises:
            CorruptLogError: It is not open.

        """
        if self._sessions.pop(session, None) is None:
            raise CorruptLogError(f"revision {revision} ends session {session.hex()}, which is not open")
        self._touched[session] = None

    def answer(self, head: CommandHead, logged_ms: int, revision: int) -> None:
        """Fold the head of a command: it is executed, this is its reply.

        Raises:
            CorruptLogError: The session is not open, or the sequence is not its next.

        """
        session, sequence = head.session, head.sequence
        known = self._sessions.get(session)
        if known is None:
            raise CorruptLogError(f"revision {revision} is of session {session.hex()}, which is not open")
        answered, last = head.answered_up_to, known.last_sequence
        expected = max(answered, last) + 1
        if sequence != expected:
            raise CorruptLogError(
                f"revision {revision} is command {sequence} of session {session.hex()}, expected {expected}"
            )
        if answered > known.answered_up_to:
            self._forget(known, answered)
        known.replies[sequence] = head.reply
        known.last_sequence = sequence
        known.revision = revision
        if known.last_ms != logged_ms:
            known.last_ms = logged_ms
            self._sessions.move_to_end(session)
        self._touched[session] = None

    @staticmethod
    def _forget(known: ClientSession, answered_up_to: int) -> None:
        """Forget the replies that the client has."""
        known.answered_up_to = answered_up_to
        replies = known.replies
        # Ascending: those to forget stand first. Mostly it is one: a replay does this for each command.
        if next(iter(replies), None) == answered_up_to:
            del replies[answered_up_to]
            return
        for sequence in list(takewhile(answered_up_to.__ge__, replies)):
            del replies[sequence]

    def due(self, now_ms: int, promoted_ms: int, ttl_ms: int, count_max: int) -> list[bytes]:
        """Return sessions to expire now, oldest first.

        Args:
            now_ms: Logged time.
            promoted_ms: Logged time at which this leader began: every session gets its full time again from there.
            ttl_ms: Time to live.
            count_max: At most so many.

        """
        due: list[bytes] = []
        if now_ms - promoted_ms < ttl_ms:
            return due
        for session, known in self._sessions.items():
            if len(due) >= count_max or now_ms - known.last_ms < ttl_ms:
                break
            due.append(session)
        return due

    @property
    def is_touched(self) -> bool:
        """True if anything was written since `take_changes`."""
        return bool(self._touched)

    def take_changes(self) -> dict[bytes, tuple[bytes | None, bytes | None]]:
        """Return the net change of every row touched since the last call: (before, now) by canonical key."""
        touched, self._touched = self._touched, {}
        changes: dict[bytes, tuple[bytes | None, bytes | None]] = {}
        for session in touched:
            known = self._sessions.get(session)
            before = self._digested.pop(session, None)
            old = None if before is None else before[0]
            new = None
            if known is not None:
                new = known.row()
                self._digested[session] = (new, known.revision)
            changes[pack((session,))] = (old, new)
        return changes

    def row_of(self, key: bytes) -> Row | None:
        """Return the row of a canonical key as the digest knows it; None if there is none."""
        (session,) = msgpack_decoder(tuple[bytes]).decode(key)
        found = self._digested.get(session)
        return None if found is None else Row(SESSIONS_TABLE, key, *found)

    def rows(self) -> Iterator[Row]:
        """Iterate over all rows as they are at this call; any thread may consume. Nothing may be touched."""
        assert not self._touched, "take the changes first: the rows come from there"
        frozen = self._digested.copy()
        return (Row(SESSIONS_TABLE, pack((session,)), row, revision) for session, (row, revision) in frozen.items())

    def restore(self, rows: list[Row]) -> None:
        """Replace all sessions by these rows, which the digest is then taken to contain.

        Raises:
            CorruptSnapshotError: A row is none of a session.

        """
        restored: list[tuple[bytes, ClientSession]] = []
        digested: dict[bytes, tuple[bytes, int]] = {}
        for row in rows:
            try:
                (session,) = msgpack_decoder(tuple[bytes]).decode(row.key)
                opened, last, answered, sequence, replies = _ROW.decode(row.row)
            except msgspec.MsgspecError as error:
                raise CorruptSnapshotError(f"row of {SESSIONS_TABLE} is no session: {error}") from error
            known = ClientSession(opened, last, answered, sequence)
            known.replies = dict(replies)
            known.revision = row.revision
            restored.append((session, known))
            digested[session] = (row.row, row.revision)
        restored.sort(key=lambda item: (item[1].last_ms, item[0]))
        self._sessions = OrderedDict(restored)
        self._digested = digested
        self._touched = {}

    def validate(self) -> None:
        for session, known in self._sessions.items():
            sequences = list(known.replies)
            assert sequences == sorted(sequences), f"session {session.hex()}: replies out of order"
            assert all(known.answered_up_to < sequence <= known.last_sequence for sequence in sequences)
            if session not in self._touched:
                assert self._digested.get(session) == (known.row(), known.revision), f"{session.hex()} changed unseen"
