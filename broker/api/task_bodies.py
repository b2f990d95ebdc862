"""Bodies of clients' requests about tasks, as JSON."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from broker.machine.commands import TaskSpec
from broker.machine.limits import (
    BATCH_TASKS_MAX,
    NAME_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    PRIORITY_MAX,
    RESOURCES_MAX,
)
from broker.machine.policies import RetryPolicy
from broker.machine.replies import Refusal
from ledger.decoding import json_decoder
from ledger.http.problems import HttpProblem

_YEARS_S = 100 * 365 * 86_400
_LAST_MS = 253_402_300_799_999  # The end of the year 9999.

Name = Annotated[str, Meta(max_length=NAME_BYTES_MAX)]
Milliseconds = Annotated[int, Meta(ge=0, le=_LAST_MS, description="ms since 1970, or a time in ms; 0 = none")]
Seconds = Annotated[float, Meta(ge=0, le=_YEARS_S)]
TaskId = Annotated[int, Meta(ge=1, le=2**53)]
_Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Group = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
_Priority = Annotated[int, Meta(ge=-PRIORITY_MAX, le=PRIORITY_MAX, description="higher first")]
Resources = Annotated[dict[Name, _Count], Meta(max_length=RESOURCES_MAX, description="amounts by name")]


class TaskBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One task to submit; at most one of `payload`, `payload_base64` and `payload_json`.

    Attributes:
        type: Routed by it.
        payload: Text.
        payload_base64: Bytes.
        payload_json: Any JSON; kept as it is written.
        at_most_once: It is never run again once it may have run.
        max_attempts: Runs at most; 0 = unlimited; without it the tenant's.
        priority: Among the tenant's own; without it the tenant's.
        group: Of workers' preferences; without it the tenant's.
        resources: Amounts by name, held while it runs.
        slot: Refused while another task of the tenant that has not ended has it.
        key: By which the tenant may hold tasks back.
        start_ms: Not before; ms since 1970.
        delay_s: Not before so long after now.
        delay_ms: The same in ms.
        deadline_ms: An error if it has not ended by then; ms since 1970.
        ttl_s: The same, counted from now.
        ttl_ms: The same in ms.
        timeout_s: Longest run.
        timeout_ms: The same in ms.
        heartbeat_s: A run of which nothing is heard for so long is lost.
        heartbeat_ms: The same in ms.
        code: Code pool that it needs.
        mode: How the code is entered.
        retry: When a failed run is repeated; without it the tenant's.
        tenant: Whose it is; only the administrator may name another than the own.

    """

    type: Annotated[str, Meta(min_length=1, max_length=NAME_BYTES_MAX)]
    payload: str | UnsetType = UNSET
    payload_base64: str | UnsetType = UNSET
    payload_json: msgspec.Raw | UnsetType = UNSET
    at_most_once: bool = False
    max_attempts: _Count | None = None
    priority: _Priority | None = None
    group: _Group | None = None
    resources: Resources = {}
    slot: Name = ""
    key: Name = ""
    start_ms: Milliseconds = 0
    delay_s: Seconds = 0.0
    delay_ms: Milliseconds = 0
    deadline_ms: Milliseconds = 0
    ttl_s: Seconds = 0.0
    ttl_ms: Milliseconds = 0
    timeout_s: Seconds = 0.0
    timeout_ms: Milliseconds = 0
    heartbeat_s: Seconds = 0.0
    heartbeat_ms: Milliseconds = 0
    code: Name = ""
    mode: Name = ""
    retry: RetryPolicy | str | None = None
    tenant: Name = ""


class SubmitBody(TaskBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One task, perhaps part of an open transaction.

    Attributes:
        transaction: Id of it; 0 = none.

    """

    transaction: Annotated[int, Meta(ge=0, le=2**53)] = 0


class BatchBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tasks of one tenant: all are accepted or none, but for those whose slot is taken.

    Attributes:
        tasks: 1 to 5,000.
        transaction: Open transaction that they become part of; 0 = none.
        tenant: Whose; only the administrator may name another than the own.

    """

    tasks: Annotated[list[TaskBody], Meta(min_length=1, max_length=BATCH_TASKS_MAX)]
    transaction: Annotated[int, Meta(ge=0, le=2**53)] = 0
    tenant: Name = ""


class IdsBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    task_ids: Annotated[list[TaskId], Meta(min_length=1, max_length=BATCH_TASKS_MAX)]


class ChangeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Changes to a task; what is not named stays. A run that has begun keeps its resources.

    Attributes:
        priority: Among the tenant's own.
        group: Of workers' preferences.
        resources: Amounts by name.
        deadline_ms: ms since 1970; 0 = none.

    """

    priority: _Priority | None = None
    group: _Group | None = None
    resources: Resources | None = None
    deadline_ms: Milliseconds | None = None


_ADDED = TaskSpec.__struct_fields__[TaskSpec.__struct_fields__.index("retry") + 1 :]
"""Fields behind those that `spec_of` names: taken as they are from the body's fields of the same names."""


def spec_of(body: TaskBody, where: str = "$") -> TaskSpec:
    """Return the task that a client describes.

    Args:
        body: As read.
        where: Its place in the body, for messages.

    Raises:
        Problem: 400, 413: it contradicts itself, or its payload is too large.

    """
    return TaskSpec(
        body.type,
        _payload(body, where),
        body.at_most_once,
        body.max_attempts,
        body.priority,
        body.group,
        body.resources,
        body.slot,
        body.key,
        body.start_ms,
        _one_of(body.delay_s, body.delay_ms, "delay", where),
        body.deadline_ms,
        _one_of(body.ttl_s, body.ttl_ms, "ttl", where),
        _one_of(body.timeout_s, body.timeout_ms, "timeout", where),
        _one_of(body.heartbeat_s, body.heartbeat_ms, "heartbeat", where),
        body.code,
        body.mode,
        _retry(body.retry, where) if body.retry is not None else "",
        *[getattr(body, name) for name in _ADDED],
    )


def _payload(body: TaskBody, where: str) -> bytes:
    given = [one for one in (body.payload, body.payload_base64, body.payload_json) if one is not UNSET]
    if not given:
        return b""
    if len(given) > 1:
        raise _invalid(f"{where}: give one of payload, payload_base64 and payload_json")
    if body.payload is not UNSET:
        payload = body.payload.encode()
    elif body.payload_base64 is not UNSET:
        try:
            payload = base64.b64decode(body.payload_base64, validate=True)
        except (binascii.Error, ValueError) as error:
            raise _invalid(f"{where}.payload_base64: not base64: {error}") from None
    else:
        payload = bytes(given[0])  # type: ignore[arg-type]
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise HttpProblem(
            413, Refusal.TOO_LARGE, f"{where}: a payload of {len(payload):,} bytes; at most {PAYLOAD_BYTES_MAX:,}: "
            "put it elsewhere and submit where it is"
        )  # fmt: skip
    return payload


def _one_of(seconds: float, milliseconds: int, what: str, where: str) -> int:
    if not seconds:
        return milliseconds
    if milliseconds:
        raise _invalid(f"{where}: give one of {what}_s and {what}_ms")
    return max(1, round(seconds * 1_000))


def _retry(retry: RetryPolicy | str, where: str) -> str:
    if isinstance(retry, RetryPolicy):
        return msgspec.json.encode(retry).decode()
    if retry:
        try:
            json_decoder(RetryPolicy).decode(retry)
        except msgspec.MsgspecError as error:
            raise _invalid(f"{where}.retry: {error}") from None
    return retry


def _invalid(detail: str) -> HttpProblem:
    return HttpProblem(400, Refusal.INVALID, detail)
