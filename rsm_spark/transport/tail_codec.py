"""Messages about confirmed entries as what the kernel uses; the only place that knows their generated code."""

from __future__ import annotations

from rsm_spark.core.confirmed_tail import ConfirmedEntry, TailStatus, ToldEntries
from rsm_spark.core.position import LogPosition
from rsm_spark.errors import InvalidCommandError
from rsm_spark.transport import tail_pb2
from rsm_spark.transport.parsing import parsed

TAIL_SERVICE = "rsm.tail.v1.Tail"
FOLLOW_METHOD = f"/{TAIL_SERVICE}/Follow"

_NUMBERS = {
    TailStatus.TOLD: tail_pb2.FollowAnswer.TOLD,
    TailStatus.NOT_HELD: tail_pb2.FollowAnswer.NOT_HELD,
    TailStatus.NOT_LEADER: tail_pb2.FollowAnswer.NOT_LEADER,
}
_STATUSES = {number: status for status, number in _NUMBERS.items()}


def encode_follow(log: str, position: LogPosition) -> bytes:
    return tail_pb2.FollowRequest(log=log, ledger_id=position.ledger_id, entry_id=position.entry_id).SerializeToString()


def decode_follow(text: bytes) -> tuple[str, LogPosition]:
    """Return the log that a request means, and the last entry that its sender has.

    Raises:
        InvalidCommandError: It is none.

    """
    message = parsed(tail_pb2.FollowRequest, text, InvalidCommandError)
    return message.log, LogPosition(message.ledger_id, message.entry_id)


def encode_told(told: ToldEntries) -> bytes:
    """Return an answer."""
    entries = [
        tail_pb2.TailEntry(ledger_id=place.ledger_id, entry_id=place.entry_id, payload=payload)
        for place, payload in told.entries
    ]
    return tail_pb2.FollowAnswer(
        status=_NUMBERS[told.status], leader_epoch=told.leader_epoch, entries=entries
    ).SerializeToString()


def decode_told(text: bytes) -> ToldEntries:
    """Read an answer; a status that this version does not know is NOT_LEADER.

    Raises:
        InvalidCommandError: It is none.

    """
    message = parsed(tail_pb2.FollowAnswer, text, InvalidCommandError)
    entries = tuple(
        ConfirmedEntry(LogPosition(entry.ledger_id, entry.entry_id), entry.payload) for entry in message.entries
    )
    return ToldEntries(_STATUSES.get(message.status, TailStatus.NOT_LEADER), message.leader_epoch, entries)
