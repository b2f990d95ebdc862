"""Records: what one entry of the log carries, as msgpack.

An entry's body is one msgpack array of records; a record is ``[type, command | nil, [field, ...]]``. The first
record of each client command carries its head ``[session, sequence, answered_up_to, record_count, reply]``, so
that followers know the reply without deciding anything. Types below `MACHINE_TYPE_FIRST` are the kernel's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

import msgspec

from rsm_spark.errors import CorruptLogError

MACHINE_TYPE_FIRST = 16
"""Record types from here on belong to the state machine and are described by it."""

FORMAT_LEVEL = 4
"""Highest format level of a log that this version reads and can write; writers use the level of the log's chain."""

AUDIT_LEVEL = 2
"""Format level from which on a log holds its audit."""

TYPES_LEVEL = 3
"""Format level from which on a machine may describe columns of other types than `machine.FIRST_TYPES`."""

REPLY_BYTES_MAX = 4096
"""A reply is kept in the log and in every snapshot until its client has it; larger results are read, not replied."""

MIGRATIONS_LEVEL = 3
"""Format level from which on a log holds migrations."""

PRODUCERS_LEVEL = 4
"""Format level from which on a plain log tells whose its records are."""

WRITERS_LEVEL = 4
"""Format level from which on a log remembers writers and what of their batches was applied."""

SESSIONS_TABLE = "_sessions"
"""Kernel table of client sessions. Key ``[session]``; row ``[opened_ms, last_ms, answered_up_to, last_sequence,
[[sequence, reply], ...]]`` with the replies after `answered_up_to`, ascending. It is part of digest and snapshot."""

VERIFIED_TABLE = "_verified"
"""Kernel table of verified snapshots. Key ``[place]``; row ``[domain, revision, digest, prefix_hash, row_count, by]``:
see `rsm_spark.core.kernel_tables`. It is part of digest and snapshot."""


MIGRATIONS_TABLE = "_migrations"
"""Kernel table of migrations: see `rsm_spark.core.migrations`. It is part of digest and snapshot."""

WRITERS_TABLE = "_writers"
"""Kernel table of writers and of the parts of their batches: see `rsm_spark.core.writers`. It is part of digest and
snapshot."""


class KernelRecord(IntEnum):
    """Record types of the kernel, with their fields.

    MACHINE_DESCRIBED ``[description]``: JSON of `MachineDescription`; first record of every log, and among the first
    of each of its ledgers.
    LEADER_STARTED ``[replica_id, incarnation]``: first record of a leadership.
    SESSION_OPENED ``[session]``, SESSION_EXPIRED ``[session]``: a row of `SESSIONS_TABLE` begins, ends.
    COMMAND_ANSWERED ``[]``: a command that changed nothing; its head carries the reply.
    CHECKPOINT_LOGGED ``[revision, digest, row_count]``: the leader's digest (16 bytes) before this entry, whose first
    record it is (but for a description).
    SNAPSHOT_VERIFIED ``[place, domain, revision, digest, prefix_hash, row_count, by]``, SNAPSHOT_WITHDRAWN ``[place]``:
    a row of `VERIFIED_TABLE` begins or is replaced, ends.
    FORMAT_RAISED ``[level]``: from here on records may be of this format level.
    AUDITED ``[principal, role, source, action, target, outcome]``: see `rsm_spark.core.commands.Audited`; format level
    `AUDIT_LEVEL`.
    KEY_ADOPTED ``[key_id, public_key]``: entries are sealed with this key from here on. It tells, it proves nothing:
    who checks has the key, or the public key, from a file of its own.
    CHECKPOINT_SIGNED ``[key_id, signature]``: right behind a checkpoint: the leader's Ed25519 signature of it
    (`rsm_spark.core.seal.checkpoint_message`).
    MIGRATED ``[version, from_version, began, ended]``: a row of `MIGRATIONS_TABLE`: a migration begins at this
    revision (`ended` 0), or ends at it; format level `MIGRATIONS_LEVEL`.
    WRITER_MARKED ``[writer, part, checkpoint, run, batch, chunks, digests, row_count, is_ended, former_runs]``,
    WRITER_FORGOTTEN ``[writer, part]``: a row of `WRITERS_TABLE` begins or is replaced, ends; format level
    `WRITERS_LEVEL`. What a writer's command has applied stands right before them, in the same command.
    """

    MACHINE_DESCRIBED = 0
    LEADER_STARTED = 1
    SESSION_OPENED = 2
    SESSION_EXPIRED = 3
    COMMAND_ANSWERED = 4
    CHECKPOINT_LOGGED = 5
    SNAPSHOT_VERIFIED = 6
    SNAPSHOT_WITHDRAWN = 7
    FORMAT_RAISED = 8
    KEY_ADOPTED = 9
    CHECKPOINT_SIGNED = 10
    AUDITED = 12
    MIGRATED = 13
    WRITER_MARKED = 14
    WRITER_FORGOTTEN = 15


class CommandHead(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Command to which the next records belong, and the reply to its client.

    Attributes:
        session: 16 bytes, chosen by the client.
        sequence: 1, 2, 3, … within the session.
        answered_up_to: The client has the replies up to here, inclusive; they may be forgotten.
        record_count: Records of this command, this one included.
        reply: What `StateMachine.decide` answered; at most `REPLY_BYTES_MAX`.

    """

    session: bytes
    sequence: int
    answered_up_to: int
    record_count: int
    reply: bytes


class Record(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One fact of the log.

    Attributes:
        type: `KernelRecord` or a type that the machine describes.
        command: Head of a client's command, on its first record; None on the others and on the leader's own.
        fields: As the type's description says; msgpack values.

    """

    type: int
    command: CommandHead | None
    fields: tuple[Any, ...]


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[Record])


def encode_records(records: Sequence[Record]) -> bytes:
    """Return the body of an entry."""
    return _ENCODER.encode(records)


def decode_records(body: bytes | memoryview) -> list[Record]:
    """Return the records of an entry's body.

    Raises:
        CorruptLogError: The bytes are no array of records.

    """
    try:
        return _DECODER.decode(body)
    except msgspec.MsgspecError as error:
        raise CorruptLogError(f"entry body of {len(body)} bytes is no array of records: {error}") from error


pack: Callable[[Sequence[Any]], bytes] = _ENCODER.encode
"""Return the canonical bytes of a key or a row: the msgpack array of its columns, in described order."""
