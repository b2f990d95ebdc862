"""Marks of writers: commands that say of which batch and which part they are, so that each is applied once.

A command of a session is applied once as long as its session lives. A writer outlives sessions: it is a name, and what
of its batches was applied stands in the log (`rsm_spark.core.writers`). A marked command is `MAGIC`, then the msgpack
array of `WriterMark`; the machine gets `payload` alone, and what the machine decides and the mark are in one entry. The
reply is the msgpack array of `MarkedReply`.
"""

from __future__ import annotations

from enum import IntEnum
from hashlib import blake2b

import msgspec

from rsm_spark.errors import InvalidCommandError

MAGIC = b"\xc1writer\x01"
"""First bytes of a marked command: no msgpack begins with 0xC1, and no machine's commands may begin with these."""

DIGEST_BYTES = 8
NAME_CHARS_MAX = 200
PARTS_MAX = 10_000
"""Parts of a batch: partitions of a Spark job."""
CHUNKS_MAX = 4_096
"""Chunks of a part; their digests, 32 KiB, are one row of the state."""
CALLS_MAX = 1 << 31
"""Calls of a part: of them the state has one digest."""
_NUMBER_MAX = 1 << 62


class MarkKind(IntEnum):
    """Kinds of marks: what a marked command says of its batch.

    BEGIN: it begins, nothing of it is applied yet. CHUNK: this is the next chunk of one of its parts. END: all of its
    parts were applied. WHOLE: this is all of it. FORGET: the writer is to be forgotten, whatever it has done.
    """

    BEGIN = 0
    CHUNK = 1
    END = 2
    WHOLE = 3
    FORGET = 4


class WriterMark(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Mark of one command.

    Attributes:
        writer: Name of the writer.
        kind: See `MarkKind`.
        checkpoint: What counts the batches: another one counts anew, from any number.
        run: One start of what counts them; a later run takes over from an earlier one, never the other way.
        batch: Number of the batch, rising; those that are left out were empty.
        part: Number of the part, from 0; of a CHUNK.
        chunk: Number of the chunk in its part, from 0.
        digest: Of the payload, `DIGEST_BYTES`; see `digest_of`. Of a call that of all before it: see `digest_after`.
        row_count: Rows of the chunk; of the batch in END and WHOLE.
        is_repeatable: Rows may be applied again where a repeated part has others than before: writing a row twice is
            the same as once.
        is_passing: The writer must have begun, and is forgotten when its batch has ended.
        takes_over_from: Checkpoint whose place this one may take; "" = none.
        parts: Of END: (part, chunks) of each.
        payload: Command of the machine; empty = none.
        is_call: The chunk is one row's command: what the machine replies is the row's outcome, a refusal too.

    """

    writer: str
    kind: MarkKind
    checkpoint: str
    run: str
    batch: int
    part: int = 0
    chunk: int = 0
    digest: bytes = b""
    row_count: int = 0
    is_repeatable: bool = False
    is_passing: bool = False
    takes_over_from: str = ""
    parts: tuple[tuple[int, int], ...] = ()
    payload: bytes = b""
    is_call: bool = False

    @property
    def fault(self) -> str:
        """Return what is wrong with it, in words; "" = nothing."""
        for what, name in (("writer", self.writer), ("checkpoint", self.checkpoint), ("run", self.run)):
            if not 0 < len(name) <= NAME_CHARS_MAX or not name.isprintable():
                return f"the name of a {what} has 1 to {NAME_CHARS_MAX} printable characters, not {name[:40]!r}"
        if not 0 <= self.batch <= _NUMBER_MAX or not 0 <= self.row_count <= _NUMBER_MAX:
            return f"batch {self.batch} of {self.row_count} rows: both are numbers from 0"
        chunks_max = CALLS_MAX if self.is_call else CHUNKS_MAX
        if not 0 <= self.part < PARTS_MAX or not 0 <= self.chunk < chunks_max:
            return (
                f"part {self.part}, chunk {self.chunk}: a batch has {PARTS_MAX} parts of {chunks_max} chunks at most; "
                "let the job write smaller batches"
            )
        if self.is_call and (self.kind != MarkKind.CHUNK or self.is_repeatable):
            return "a call is a chunk, and is never made twice"
        if self.kind == MarkKind.CHUNK and len(self.digest) != DIGEST_BYTES:
            return f"the digest of a chunk has {DIGEST_BYTES} bytes, this one has {len(self.digest)}"
        if len(self.parts) > PARTS_MAX or len({part for part, _ in self.parts}) != len(self.parts):
            return f"the end of a batch names each of its {PARTS_MAX} parts, at most, once"
        return ""


class MarkedStatus(IntEnum):
    """Outcomes of a marked command.

    APPLIED: it was, with this entry. DONE: it was before, nothing was changed. REFUSED: it breaks a rule of writers,
    nothing was changed. DECLINED: the machine refused the payload, in its reply; nothing was changed, nor marked, but
    for a call, which is over.
    WAITING: the log's format level does not know writers yet, and is being raised: send it again. GONE: there is no
    such writer, which must have begun: its batch has ended, or it was forgotten.
    """

    APPLIED = 0
    DONE = 1
    REFUSED = 2
    DECLINED = 3
    WAITING = 4
    GONE = 5


class MarkedReply(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Reply to a marked command: what became of it, why, and what the machine replied to the payload."""

    status: MarkedStatus
    reason: str = ""
    reply: bytes = b""


_ENCODER = msgspec.msgpack.Encoder()
_MARKS = msgspec.msgpack.Decoder(WriterMark)
_REPLIES = msgspec.msgpack.Decoder(MarkedReply)


def digest_of(payload: bytes) -> bytes:
    """Return what tells the chunks of a part apart."""
    return blake2b(payload, digest_size=DIGEST_BYTES).digest()


def digest_after(digest: bytes, payload: bytes) -> bytes:
    """Return the digest of all calls of a part so far: of those before it, and of the next; the first follows zeros."""
    return blake2b(digest + payload, digest_size=DIGEST_BYTES).digest()


def is_marked(command: bytes) -> bool:
    """Return whether a command has a mark."""
    return command.startswith(MAGIC)


def encode_mark(mark: WriterMark) -> bytes:
    """Return the bytes of a marked command."""
    return MAGIC + _ENCODER.encode(mark)


def decode_mark(command: bytes) -> WriterMark:
    """Read a marked command.

    Raises:
        InvalidCommandError: It is none.

    """
    try:
        return _MARKS.decode(memoryview(command)[len(MAGIC) :])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidCommandError(f"not a marked command: {error}") from error


def encode_marked_reply(reply: MarkedReply) -> bytes:
    """Return the bytes of a reply."""
    return _ENCODER.encode(reply)


def decode_marked_reply(reply: bytes) -> MarkedReply:
    """Read a reply.

    Raises:
        InvalidCommandError: It is none: the replica does not know marked commands.

    """
    try:
        return _REPLIES.decode(reply)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidCommandError(f"not the reply to a marked command: {error}") from error
