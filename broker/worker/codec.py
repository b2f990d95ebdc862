"""Payloads and results of tasks, encoded at both ends: by clients and by workers. The broker keeps what it is given.

A payload is bound to the task's type, a result to the task. Errors and progress are for people, and are not encoded.
"""

from __future__ import annotations

import importlib
from typing import Any

import msgspec

from broker.machine.commands import EndedRun
from broker.machine.limits import RESULT_BYTES_MAX
from broker.machine.statuses import TaskStatus
from broker.machine.worker_messages import AssignedRun
from broker.wire.code_declaration import check_function
from broker.worker.outcomes import failed
from ledger.errors import UsageError
from rsm_spark.codecs.framing import PayloadCodec, decoded, encoded
from rsm_spark.codecs.places import payload_place, result_place


def load_codec(name: str) -> PayloadCodec:
    """Return what a user's function makes, by the name that `--codec` gives it.

    Raises:
        UsageError: There is no such function, it fails, or what it makes is no codec.

    """
    check_function(name)
    module, _, attribute = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
        codec = found()
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"--codec {name}: {type(error).__name__}: {error}") from error
    if not all(hasattr(codec, part) for part in ("codec_id", "reads_plain", "encode", "decode")):
        raise UsageError(f"--codec {name}: it made a {type(codec).__name__}, which is no codec: see rsm_spark.codecs")
    made: PayloadCodec = codec
    return made


def opened_run(codec: PayloadCodec, run: AssignedRun) -> AssignedRun:
    """Return a run with its payload as the client gave it.

    Raises:
        CodecError: It was not encoded by this codec, for this type.

    """
    return msgspec.structs.replace(run, payload=decoded(codec, run.payload, payload_place(run.type)))


def sealed_end(codec: PayloadCodec, end: EndedRun) -> EndedRun:
    """Return an end with its result encoded, if it has one; one that is too large then is an error."""
    if end.status != TaskStatus.FINISHED:
        return end
    try:
        result = encoded(codec, end.result, result_place(end.task_id))
    except Exception as error:  # noqa: BLE001 - a codec may be a user's
        return failed(end.task_id, end.assignment_id, f"its result cannot be encoded: {type(error).__name__}: {error}")
    if len(result) > RESULT_BYTES_MAX:
        why = f"ValueError: the encoded result has {len(result):,} bytes, {RESULT_BYTES_MAX:,} are allowed"
        return failed(end.task_id, end.assignment_id, why)
    return msgspec.structs.replace(end, result=result)
