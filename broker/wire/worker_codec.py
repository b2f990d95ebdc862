"""Messages of `worker.proto` as what the broker and its workers use; the only place that knows their generated code.

What comes from the other side is checked here, so that nothing behind it meets a name that is too long or a status
that there is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from broker.machine.commands import EndedRun, HeldRun, ProgressOf
from broker.machine.limits import ERROR_BYTES_MAX, NAME_BYTES_MAX, RESULT_BYTES_MAX
from broker.machine.policies import WorkerOffer
from broker.machine.statuses import ENDED
from broker.machine.worker_messages import (
    AssignedRun,
    CodePiece,
    FromBroker,
    FromWorker,
    WorkerHello,
    WorkerWelcome,
)
from broker.wire import worker_pb2 as pb
from rsm_spark.errors import InvalidCommandError
from rsm_spark.transport.parsing import parsed

WORKERS_SERVICE = "rsm.broker.v1.Workers"
WORK_METHOD = f"/{WORKERS_SERVICE}/Work"
DOWNLOAD_METHOD = f"/{WORKERS_SERVICE}/DownloadCode"
CODE_CHUNK_BYTES = 256 * 1024

_INCARNATION_LETTERS = frozenset("0123456789abcdef")
_TEXT_BYTES_MAX = 1_000
"""Bytes of a location or of a progress message."""
_THREADS_MAX = 100_000
_COUNTS_MAX = 10_000
"""Types, groups or resources that one offer names."""

# ---- of a worker


def encode_from_worker(said: FromWorker) -> bytes:
    """Return a worker's message."""
    message = pb.WorkerMessage(
        ended=_ended_messages(said.ended),
        progress=[pb.Progress(task_id=p.task_id, assignment_id=p.assignment_id, fraction=p.fraction, message=p.message)
                  for p in said.progress],
        draining=said.is_draining,
        leaving=said.is_leaving,
        ping=said.ping,
    )  # fmt: skip
    if said.offer is not None:
        message.offer.CopyFrom(_offer_message(said.offer))
    if said.hello is not None:
        message.hello.CopyFrom(_hello_message(said.hello))
    return message.SerializeToString()


def decode_from_worker(text: bytes) -> FromWorker:
    """Read a worker's message.

    Raises:
        InvalidCommandError: It is none; the text says what is wrong.

    """
    message = parsed(pb.WorkerMessage, text, InvalidCommandError)
    return FromWorker(
        _hello(message.hello) if message.HasField("hello") else None,
        [_ended(one) for one in message.ended],
        [_progress(one) for one in message.progress],
        _offer(message.offer) if message.HasField("offer") else None,
        message.draining,
        message.leaving,
        message.ping,
    )


def _hello_message(hello: WorkerHello) -> pb.Hello:
    return pb.Hello(
        worker_id=hello.worker_id,
        incarnation=hello.incarnation,
        location=hello.location,
        offer=_offer_message(hello.offer),
        delivered_up_to=hello.delivered_up_to,
        held=_run_messages(hello.held),
        ended=_ended_messages(hello.ended),
        leader_epoch=hello.leader_epoch,
        stream=hello.stream,
    )


def _hello(message: pb.Hello) -> WorkerHello:
    incarnation = message.incarnation
    if len(incarnation) != 32 or not _INCARNATION_LETTERS.issuperset(incarnation):
        raise InvalidCommandError("a worker's incarnation is 32 hex digits, drawn anew by each process")
    if not message.worker_id:
        raise InvalidCommandError("a worker needs an id")
    if message.delivered_up_to < 0 or message.leader_epoch < 0 or message.stream < 0:
        raise InvalidCommandError("delivered_up_to, leader_epoch and stream are not below 0")
    return WorkerHello(
        _text("worker id", message.worker_id, NAME_BYTES_MAX),
        incarnation,
        _text("location", message.location, _TEXT_BYTES_MAX),
        _offer(message.offer),
        message.delivered_up_to,
        [HeldRun(run.task_id, run.assignment_id) for run in message.held],
        [_ended(one) for one in message.ended],
        message.leader_epoch,
        message.stream,
    )


def _offer_message(offer: WorkerOffer) -> pb.Offer:
    return pb.Offer(
        threads_max=offer.threads_max,
        threads_by_type=_count_messages(offer.threads_by_type),
        any_type_threads=offer.any_type_threads,
        groups=offer.groups,
        excluded_groups=offer.excluded_groups,
        resources=_count_messages(offer.resources),
        tenant_share_percent=offer.tenant_share_percent,
    )


def _offer(message: pb.Offer) -> WorkerOffer:
    any_type_threads = message.any_type_threads if message.HasField("any_type_threads") else None
    if not 0 <= message.threads_max <= _THREADS_MAX or (any_type_threads is not None and any_type_threads < 0):
        raise InvalidCommandError(f"a worker offers 0 to {_THREADS_MAX} threads, not {message.threads_max}")
    if not 0 <= message.tenant_share_percent <= 100:
        raise InvalidCommandError(f"tenant_share_percent is 0 to 100, not {message.tenant_share_percent}")
    if len(message.groups) > _COUNTS_MAX or len(message.excluded_groups) > _COUNTS_MAX:
        raise InvalidCommandError(f"a worker names at most {_COUNTS_MAX} groups")
    return WorkerOffer(
        message.threads_max,
        _counts("threads of a type", message.threads_by_type),
        any_type_threads,
        tuple(message.groups),
        tuple(message.excluded_groups),
        _counts("amount of a resource", message.resources),
        message.tenant_share_percent,
    )


def _ended_messages(ended: Iterable[EndedRun]) -> list[pb.Ended]:
    return [
        pb.Ended(
            task_id=one.task_id,
            assignment_id=one.assignment_id,
            status=one.status,
            outcome=one.outcome,
            error=one.error,
            result=one.result,
        )
        for one in ended
    ]


def _ended(message: pb.Ended) -> EndedRun:
    if message.status not in ENDED:
        raise InvalidCommandError(f"a run does not end with status {message.status}: use one of {sorted(ENDED)}")
    if len(message.result) > RESULT_BYTES_MAX:
        raise InvalidCommandError(
            f"task {message.task_id}: its result has {len(message.result)} bytes, {RESULT_BYTES_MAX} are allowed"
        )
    return EndedRun(
        message.task_id,
        message.assignment_id,
        message.status,
        _text("outcome", message.outcome, NAME_BYTES_MAX),
        _text("error", message.error, ERROR_BYTES_MAX),
        message.result,
    )


def _progress(message: pb.Progress) -> ProgressOf:
    fraction = message.fraction
    if math.isnan(fraction) or not -1.0 <= fraction <= 1.0:
        raise InvalidCommandError(f"task {message.task_id}: progress is 0 to 1, or -1 where it is not known")
    return ProgressOf(
        message.task_id, message.assignment_id, fraction, _text("progress message", message.message, _TEXT_BYTES_MAX)
    )


# ---- of the broker


def encode_from_broker(said: FromBroker) -> bytes:
    """Return the broker's message."""
    message = pb.BrokerMessage(
        leader_epoch=said.leader_epoch,
        assignments=[_assignment_message(one) for one in said.assignments],
        acknowledged=said.acknowledged,
        cancels=_run_messages(said.cancels),
        pong=said.pong,
        leader=said.leader,
        refused=said.refused,
        stop=said.is_stop,
    )
    if said.is_replaced is not None:
        message.replaced = said.is_replaced
    if said.welcome is not None:
        message.welcome.CopyFrom(
            pb.Welcome(ping_ms=said.welcome.ping_ms, lease_ms=said.welcome.lease_ms, broker_id=said.welcome.broker_id)
        )
    return message.SerializeToString()


def decode_from_broker(text: bytes) -> FromBroker:
    """Read the broker's message.

    Raises:
        InvalidCommandError: It is none.

    """
    message = parsed(pb.BrokerMessage, text, InvalidCommandError)
    welcome = None
    if message.HasField("welcome"):
        welcome = WorkerWelcome(message.welcome.ping_ms, message.welcome.lease_ms, message.welcome.broker_id)
    return FromBroker(
        message.leader_epoch,
        welcome,
        [_assignment(one) for one in message.assignments],
        list(message.acknowledged),
        [HeldRun(run.task_id, run.assignment_id) for run in message.cancels],
        message.pong,
        message.leader,
        message.refused,
        message.stop,
        message.replaced if message.HasField("replaced") else None,
    )


# Fields of a run have the same names here and there, so that nobody writes them out twice more.
_RUN_NAMES = tuple(name for name in AssignedRun.__struct_fields__ if name != "resources")


def _assignment_message(run: AssignedRun) -> pb.Assignment:
    fields: dict[str, Any] = {name: getattr(run, name) for name in _RUN_NAMES}
    return pb.Assignment(**fields, resources=_count_messages(run.resources) if run.resources else ())


def _assignment(message: pb.Assignment) -> AssignedRun:
    fields: dict[str, Any] = {name: getattr(message, name) for name in _RUN_NAMES}
    return AssignedRun(**fields, resources={count.name: count.amount for count in message.resources})


# ---- code


def encode_code_request(code: str, offset: int) -> bytes:
    """Return what asks for an archive, from an offset on."""
    return pb.CodeRequest(code=code, offset=offset).SerializeToString()


def decode_code_request(text: bytes) -> tuple[str, int]:
    """Return (name, offset) of what is asked for.

    Raises:
        InvalidCommandError: It is no such request.

    """
    message = parsed(pb.CodeRequest, text, InvalidCommandError)
    if message.offset < 0:
        raise InvalidCommandError(f"offset {message.offset} of code {message.code[:80]!r}: not below 0")
    return _text("code", message.code, NAME_BYTES_MAX), message.offset


def encode_code_piece(piece: CodePiece) -> bytes:
    """Return one message of a download."""
    return pb.CodeChunk(data=piece.data, total_bytes=piece.total_bytes, sha256=piece.sha256).SerializeToString()


def decode_code_piece(text: bytes) -> CodePiece:
    """Read one message of a download.

    Raises:
        InvalidCommandError: It is none.

    """
    message = parsed(pb.CodeChunk, text, InvalidCommandError)
    return CodePiece(message.data, message.total_bytes, message.sha256)


# ---- parts of both


def _run_messages(runs: Iterable[HeldRun]) -> list[pb.Run]:
    return [pb.Run(task_id=run.task_id, assignment_id=run.assignment_id) for run in runs]


def _count_messages(counts: dict[str, int]) -> list[pb.Count]:
    return [pb.Count(name=name, amount=amount) for name, amount in counts.items()]


def _counts(what: str, messages: Iterable[pb.Count]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for message in messages:
        if message.amount < 0 or len(counts) >= _COUNTS_MAX:
            raise InvalidCommandError(
                f"{what} {message.name[:80]!r}: {message.amount} is below 0, or too many are named"
            )
        counts[_text(what, message.name, NAME_BYTES_MAX)] = message.amount
    return counts


def _text(what: str, text: str, bytes_max: int) -> str:
    if len(text) > bytes_max or len(text.encode()) > bytes_max:
        raise InvalidCommandError(f"{what} of {len(text.encode())} bytes: {bytes_max} are allowed")
    return text
