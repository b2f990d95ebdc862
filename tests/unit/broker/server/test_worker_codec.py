"""Messages between worker and broker keep what they say, and what is none is refused."""

from __future__ import annotations

import pytest

from broker.machine.commands import EndedRun, HeldRun, ProgressOf
from broker.machine.limits import ERROR_BYTES_MAX, RESULT_BYTES_MAX
from broker.machine.policies import WorkerOffer
from broker.machine.worker_messages import (
    AssignedRun,
    CodePiece,
    FromBroker,
    FromWorker,
    WorkerHello,
    WorkerWelcome,
)
from broker.wire import worker_pb2
from broker.wire.worker_codec import (
    decode_code_piece,
    decode_code_request,
    decode_from_broker,
    decode_from_worker,
    encode_code_piece,
    encode_code_request,
    encode_from_broker,
    encode_from_worker,
)
from rsm_spark.errors import InvalidCommandError

_INCARNATION = "0123456789abcdef" * 2
_OFFER = WorkerOffer(8, {"mail": 4}, 2, (3, 0), (7,), {"gpu": 1}, 50)
_ENDED = EndedRun(7, 11, 2, "", "", b"done")


def test_a_worker_s_message_says_the_same_on_the_other_side() -> None:
    hello = WorkerHello("w", _INCARNATION, "host", _OFFER, 11, [HeldRun(7, 11)], [_ENDED], 3)
    said = FromWorker(hello, [_ENDED], [ProgressOf(8, 12, 0.5, "half")], _OFFER, True, True, 5)

    assert decode_from_worker(encode_from_worker(said)) == said


def test_threads_of_any_type_that_were_not_said_stay_so() -> None:
    said = FromWorker(offer=WorkerOffer(8))

    assert decode_from_worker(encode_from_worker(said)) == said


def test_a_run_has_the_same_fields_on_the_wire() -> None:
    assert [field.name for field in worker_pb2.Assignment.DESCRIPTOR.fields] == list(AssignedRun.__struct_fields__)


def test_the_broker_s_message_says_the_same_on_the_other_side() -> None:
    run = AssignedRun(7, 11, "t", "mail", b"payload", 2, 1000, 2000, 3000, "code", "mode", "slot", "key", {"db": 1})
    said = FromBroker(3, WorkerWelcome(1, 2, "a"), [run], [9, 10], [HeldRun(7, 11)], 5, "h:1", "no", True)

    assert decode_from_broker(encode_from_broker(said)) == said


@pytest.mark.parametrize("is_replaced", [None, False, True])
def test_whether_a_refused_worker_was_replaced_may_be_unsaid_as_brokers_of_before_leave_it(
    is_replaced: bool | None,
) -> None:
    before = encode_from_broker(FromBroker(3, refused="no"))
    said = FromBroker(3, refused="no", is_replaced=is_replaced)
    assert decode_from_broker(encode_from_broker(said)) == said
    # A worker of before knows no field 10 and finds the rest where it was.
    assert encode_from_broker(said) == before + {None: b"", False: b"\x50\x00", True: b"\x50\x01"}[is_replaced]


def test_a_piece_of_code_says_the_same_on_the_other_side() -> None:
    assert decode_code_request(encode_code_request("mailer", 17)) == ("mailer", 17)
    piece = CodePiece(b"zip", 1000, "ab" * 32)
    assert decode_code_piece(encode_code_piece(piece)) == piece


@pytest.mark.parametrize(
    "message",
    [
        worker_pb2.WorkerMessage(hello=worker_pb2.Hello(worker_id="w", incarnation="short")),
        worker_pb2.WorkerMessage(hello=worker_pb2.Hello(worker_id="", incarnation=_INCARNATION)),
        worker_pb2.WorkerMessage(hello=worker_pb2.Hello(worker_id="w" * 201, incarnation=_INCARNATION)),
        worker_pb2.WorkerMessage(hello=worker_pb2.Hello(worker_id="w", incarnation=_INCARNATION, delivered_up_to=-1)),
        worker_pb2.WorkerMessage(offer=worker_pb2.Offer(threads_max=-1)),
        worker_pb2.WorkerMessage(offer=worker_pb2.Offer(resources=[worker_pb2.Count(name="db", amount=-1)])),
        worker_pb2.WorkerMessage(ended=[worker_pb2.Ended(task_id=1, status=1)]),
        worker_pb2.WorkerMessage(ended=[worker_pb2.Ended(status=2, result=bytes(RESULT_BYTES_MAX + 1))]),
        worker_pb2.WorkerMessage(ended=[worker_pb2.Ended(status=4, error="x" * (ERROR_BYTES_MAX + 1))]),
        worker_pb2.WorkerMessage(progress=[worker_pb2.Progress(task_id=1, fraction=float("nan"))]),
        worker_pb2.WorkerMessage(progress=[worker_pb2.Progress(task_id=1, fraction=1.5)]),
    ],
)
def test_a_message_that_breaks_a_bound_is_refused(message: worker_pb2.WorkerMessage) -> None:
    with pytest.raises(InvalidCommandError):
        decode_from_worker(message.SerializeToString())


@pytest.mark.parametrize("decode", [decode_from_worker, decode_from_broker, decode_code_request, decode_code_piece])
def test_bytes_that_are_no_message_are_refused(decode) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidCommandError):
        decode(b"\x0a\xff\xff\xff\xff\x0f nonsense")
