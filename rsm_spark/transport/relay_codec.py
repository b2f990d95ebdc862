"""Messages about relays as what the transport uses; the only place that knows their generated code."""

from __future__ import annotations

from typing import NamedTuple

from rsm_spark.errors import InvalidCommandError
from rsm_spark.transport import relay_pb2
from rsm_spark.transport.parsing import parsed

RELAY_SERVICE = "rsm.relay.v1.Relay"
RELAY_METHOD = f"/{RELAY_SERVICE}/Exchange"
PASS_ON_METHOD = f"/{RELAY_SERVICE}/PassOn"


class PassedCaller(NamedTuple):
    """A client whose stream is passed on.

    Attributes:
        log: Name of the log that the replica serves.
        token: What it has shown; empty = none.
        names: In its certificate.
        peer: Where it called from.
        is_packed: Its messages are those of the framed port.

    """

    log: str
    token: bytes
    names: tuple[str, ...]
    peer: str
    is_packed: bool


def encode_caller(caller: PassedCaller) -> bytes:
    return relay_pb2.PassedCaller(
        log=caller.log, token=caller.token, names=caller.names, peer=caller.peer, packed=caller.is_packed
    ).SerializeToString()


def decode_caller(text: bytes) -> PassedCaller:
    """Read the first message of a stream that is passed on.

    Raises:
        InvalidCommandError: It is none.

    """
    message = parsed(relay_pb2.PassedCaller, text, InvalidCommandError)
    return PassedCaller(message.log, message.token, tuple(message.names), message.peer, message.packed)
