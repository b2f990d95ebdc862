"""Bytes of commands, replies, queries and results: msgpack of the structs, by their tags."""

from __future__ import annotations

import msgspec

from broker.machine.commands import BrokerCommand
from broker.machine.queries import BrokerQuery
from broker.machine.replies import BrokerReply
from broker.machine.views import BrokerResult

_ENCODER = msgspec.msgpack.Encoder()
_COMMANDS: msgspec.msgpack.Decoder[BrokerCommand] = msgspec.msgpack.Decoder(BrokerCommand)
_REPLIES: msgspec.msgpack.Decoder[BrokerReply] = msgspec.msgpack.Decoder(BrokerReply)
_QUERIES: msgspec.msgpack.Decoder[BrokerQuery] = msgspec.msgpack.Decoder(BrokerQuery)
_RESULTS: msgspec.msgpack.Decoder[BrokerResult] = msgspec.msgpack.Decoder(BrokerResult)


def encode(message: BrokerCommand | BrokerReply | BrokerQuery | BrokerResult) -> bytes:
    """Return the bytes of a message."""
    return _ENCODER.encode(message)


def decode_command(text: bytes) -> BrokerCommand:
    """Read a command back.

    Raises:
        msgspec.MsgspecError: It is none.

    """
    return _COMMANDS.decode(text)


def decode_reply(text: bytes) -> BrokerReply:
    """Read a reply back.

    Raises:
        msgspec.MsgspecError: It is none.

    """
    return _REPLIES.decode(text)


def decode_query(text: bytes) -> BrokerQuery:
    """Read a query back.

    Raises:
        msgspec.MsgspecError: It is none.

    """
    return _QUERIES.decode(text)


def decode_result(text: bytes) -> BrokerResult:
    """Read a result back.

    Raises:
        msgspec.MsgspecError: It is none.

    """
    return _RESULTS.decode(text)
