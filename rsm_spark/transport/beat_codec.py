"""Messages about beats as what the kernel uses; the only place that knows their generated code."""

from __future__ import annotations

from rsm_spark.core.beats import BeatAnswer
from rsm_spark.errors import InvalidCommandError
from rsm_spark.transport import beat_pb2
from rsm_spark.transport.parsing import parsed

BEAT_SERVICE = "rsm.beat.v1.Beats"
LISTEN_METHOD = f"/{BEAT_SERVICE}/Listen"
ASK_METHOD = f"/{BEAT_SERVICE}/Ask"
BEAT = b""
"""Message of a Listen stream."""

_NUMBERS = {
    BeatAnswer.UNKNOWN: beat_pb2.AskAnswer.UNKNOWN,
    BeatAnswer.HEARS: beat_pb2.AskAnswer.HEARS,
    BeatAnswer.SILENT: beat_pb2.AskAnswer.SILENT,
}
_ANSWERS = {number: answer for answer, number in _NUMBERS.items()}


def encode_listen(log: str, incarnation: str) -> bytes:
    return beat_pb2.ListenRequest(log=log, incarnation=incarnation).SerializeToString()


def decode_listen(text: bytes) -> tuple[str, str]:
    """Return log and process that a Listen request means.

    Raises:
        InvalidCommandError: It is none.

    """
    message = parsed(beat_pb2.ListenRequest, text, InvalidCommandError)
    return message.log, message.incarnation


def encode_ask(log: str, incarnation: str) -> bytes:
    return beat_pb2.AskRequest(log=log, incarnation=incarnation).SerializeToString()


def decode_ask(text: bytes) -> tuple[str, str]:
    """Return log and process that an Ask request is about.

    Raises:
        InvalidCommandError: It is none.

    """
    message = parsed(beat_pb2.AskRequest, text, InvalidCommandError)
    return message.log, message.incarnation


def encode_ask_answer(answer: BeatAnswer) -> bytes:
    return beat_pb2.AskAnswer(heard=_NUMBERS[answer]).SerializeToString()


def decode_ask_answer(text: bytes) -> BeatAnswer:
    """Read the answer to an Ask request; a word that this version does not know is UNKNOWN.

    Raises:
        InvalidCommandError: It is none.

    """
    return _ANSWERS.get(parsed(beat_pb2.AskAnswer, text, InvalidCommandError).heard, BeatAnswer.UNKNOWN)
