"""A leader of the map and a follower that applies what it composes; a driver of writers' commands beside them."""

from __future__ import annotations

from typing import Any

from rsm_spark.core.batching import BatchLimits, Composer
from rsm_spark.core.commands import Command, OpenSession
from rsm_spark.core.machine import StateMachine
from rsm_spark.core.records import WRITERS_LEVEL
from rsm_spark.core.state import ReplicatedState
from rsm_spark.core.submissions import RequestQueue, Submission
from rsm_spark.core.writer_marks import (
    MarkedReply,
    MarkedStatus,
    MarkKind,
    WriterMark,
    decode_marked_reply,
    digest_of,
    encode_mark,
)
from rsm_spark.map.commands import RowWrite, WriteRows
from rsm_spark.map.machine import MapMachine
from rsm_spark.map.messages import encode

SESSION = bytes(16)


def rows_of(*items: tuple[bytes, bytes | None]) -> bytes:
    """Return the command that writes rows."""
    return encode(WriteRows([RowWrite(key, value) for key, value in items]))


def chunk(payload: bytes, number: int = 0, *, part: int = 0, batch: int = 0, **fields: Any) -> WriterMark:
    """Return the mark of a chunk, as writer "w" unless said otherwise."""
    whole = {"batch": batch, "part": part, "chunk": number, "digest": digest_of(payload), "payload": payload}
    named: dict[str, Any] = {"writer": "w", "checkpoint": "c", "run": "r1", "row_count": 1} | whole | fields
    return WriterMark(kind=MarkKind.CHUNK, **named)


def end(*parts: tuple[int, int], batch: int = 0, kind: MarkKind = MarkKind.END, **fields: Any) -> WriterMark:
    """Return the mark of an end, as writer "w" unless said otherwise."""
    named: dict[str, Any] = {"writer": "w", "checkpoint": "c", "run": "r1", "row_count": 1} | fields
    return WriterMark(kind=kind, batch=batch, parts=parts, **named)


class MarkedLeader:
    """See the module; every entry is applied by the follower, and both are compared."""

    def __init__(self, machine: type[StateMachine] = MapMachine, format_level: int = WRITERS_LEVEL) -> None:
        self.state = ReplicatedState(machine(), bytes(16))
        self.follower = ReplicatedState(machine(), bytes(16))
        self.composer = Composer(
            self.state,
            BatchLimits(4 * 1024 * 1024, 1000, 10),
            leader_epoch=1,
            promoted_ms=0,
            session_ttl_ms=1 << 40,
            checkpoint_records=1 << 40,
            format_level=format_level,
        )
        self.queue = RequestQueue()
        self.sequence = 0
        self.entries: list[bytes] = []
        self.queue.add(Submission([OpenSession(SESSION)], None))
        self.compose()

    def compose(self) -> None:
        """Make one entry."""
        batch = self.composer.compose(self.queue, 0)
        batch.confirm()
        self.entries.append(batch.payload)
        self.follower.apply_entry(batch.payload)
        assert self.follower.digest == self.state.digest
        self.state.validate()
        self.follower.validate()

    def send(self, mark: WriterMark) -> MarkedReply:
        """Send a mark in an entry of its own; return its reply."""
        return self.ask(encode_mark(mark))

    def ask(self, command: bytes) -> MarkedReply:
        """Send the bytes of a marked command."""
        self.sequence += 1
        submission = Submission([Command(SESSION, self.sequence, self.sequence - 1, command)], None)
        self.queue.add(submission)
        self.compose()
        return decode_marked_reply(submission.answers[0].payload)

    def status(self, mark: WriterMark) -> MarkedStatus:
        """Send a mark; return what became of it."""
        return self.send(mark).status

    def map_rows(self) -> dict[bytes, int]:
        """Return the version of each key: how often it was written."""
        machine = self.follower.machine
        assert isinstance(machine, MapMachine)
        return {key: entry.version for key, entry in machine.live.entries.items()}
