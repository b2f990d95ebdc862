"""Whatever comes over a worker's stream is a message or is refused; nothing else leaves the codec."""

from __future__ import annotations

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.machine.commands import EndedRun, HeldRun, ProgressOf
from broker.machine.policies import WorkerOffer
from broker.machine.worker_messages import FromWorker, WorkerHello
from broker.wire.worker_codec import (
    decode_code_piece,
    decode_code_request,
    decode_from_broker,
    decode_from_worker,
    encode_from_worker,
)
from rsm_spark.errors import InvalidCommandError
from tests.sets import examples

_DECODERS = (decode_from_worker, decode_from_broker, decode_code_request, decode_code_piece)
_TEXT = encode_from_worker(
    FromWorker(
        WorkerHello(
            "w", "0123456789abcdef" * 2, "host", WorkerOffer(8, {"mail": 4}, 2, (3, 0), (7,), {"gpu": 1}, 50), 11,
            [HeldRun(7, 11)], [EndedRun(7, 11, 2, "", "", b"done")], 3,
        ),
        [EndedRun(7, 11, 4, "failed", "ValueError", b"")],
        [ProgressOf(8, 12, 0.5, "half")],
        WorkerOffer(8),
        ping=5,
    )
)  # fmt: skip


@given(st.binary(max_size=200))
@settings(max_examples=examples(100), deadline=None)
def test_random_bytes_are_a_message_or_refused(text: bytes) -> None:
    for decode in _DECODERS:
        with contextlib.suppress(InvalidCommandError):
            decode(text)


@given(st.lists(st.tuples(st.integers(0, len(_TEXT) - 1), st.integers(0, 255)), max_size=6), st.integers(0, len(_TEXT)))
@settings(max_examples=examples(200), deadline=None)
def test_a_message_with_changed_bytes_or_cut_short_is_one_or_refused(changes: list[tuple[int, int]], size: int) -> None:
    text = bytearray(_TEXT)
    for place, value in changes:
        text[place] = value
    for decode in _DECODERS:
        with contextlib.suppress(InvalidCommandError):
            decode(bytes(text))
        with contextlib.suppress(InvalidCommandError):
            decode(bytes(text[:size]))
