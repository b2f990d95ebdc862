"""A task as a client writes it down to submit it, and as the broker answers what it is.

`NewTask` and `TaskOptions` name the same fields: a type checker knows the options of a call by the latter.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any, TypedDict

import msgspec

from broker.machine.limits import PAYLOAD_BYTES_MAX
from broker.machine.policies import RetryPolicy
from ledger.errors import UsageError
from rsm_spark.codecs.framing import PayloadCodec, decoded, encoded
from rsm_spark.codecs.places import payload_place, result_place

ENDED_STATUSES = frozenset({"finished", "error", "cancelled"})
_CHUNK_BYTES_MAX = 2 * 1024 * 1024
"""Bytes of the payloads of one batch: its records have to fit one entry of the log."""


class TaskOptions(TypedDict, total=False):
    """Options of a task beside its type and payload: see `NewTask`."""

    at_most_once: bool
    max_attempts: int | None
    priority: int | None
    group: int | None
    resources: dict[str, int]
    slot: str
    key: str
    start_ms: int
    delay_s: float
    deadline_ms: int
    ttl_s: float
    timeout_s: float
    heartbeat_s: float
    code: str
    mode: str
    retry: RetryPolicy | None


class NewTask(msgspec.Struct, frozen=True):
    """One task to submit.

    Attributes:
        type: Workers are chosen by it.
        payload: At most 1 MiB.
        at_most_once: It is never run again once it may have run; else it is run until it ends.
        max_attempts: Runs at most; 0 = unlimited; None = the tenant's.
        priority: Among the tenant's own, higher first; None = the tenant's.
        group: Of workers' preferences; None = the tenant's.
        resources: Amounts by name, held while it runs.
        slot: Refused while another task of the tenant that has not ended has it; "" = none.
        key: By which the tenant may hold tasks back; "" = none.
        start_ms: Not before; 0 = now.
        delay_s: Not before so long after now; 0 = none. Only one of the two is given.
        deadline_ms: An error if it has not ended by then; 0 = none.
        ttl_s: The same, counted from now.
        timeout_s: Longest run; 0 = none.
        heartbeat_s: A run of which nothing is heard for so long is lost; 0 = not watched.
        code: Code pool that it needs; "" = the worker's own code.
        mode: How the code is entered: see `broker.worker`.
        retry: When a failed run is repeated; None = as the tenant's policy says.

    """

    type: str
    payload: bytes | str = b""
    at_most_once: bool = False
    max_attempts: int | None = None
    priority: int | None = None
    group: int | None = None
    resources: dict[str, int] = {}
    slot: str = ""
    key: str = ""
    start_ms: int = 0
    delay_s: float = 0.0
    deadline_ms: int = 0
    ttl_s: float = 0.0
    timeout_s: float = 0.0
    heartbeat_s: float = 0.0
    code: str = ""
    mode: str = ""
    retry: RetryPolicy | None = None


_PLAIN = [one for one in msgspec.structs.fields(NewTask) if one.name not in {"type", "payload", "retry"}]
"""Fields that JSON holds under the same name and in the same form."""
_plain_of = attrgetter(*[one.name for one in _PLAIN])
_WireTask: Any = msgspec.defstruct(
    "_WireTask",
    [
        ("type", str),
        ("payload", str, ""),
        ("payload_base64", str, ""),
        *[(one.name, one.type, {} if one.name == "resources" else one.default) for one in _PLAIN],
        ("retry", str, ""),
        ("transaction", int, 0),
    ],
    frozen=True,
    omit_defaults=True,
)


def wire_task(task: NewTask, transaction: int = 0, codec: PayloadCodec | None = None) -> Any:
    """Return what is encoded as JSON; fields that have their defaults are left out of it.

    Args:
        task: What is submitted.
        transaction: That it is part of; 0 = none.
        codec: Encodes its payload.

    Raises:
        UsageError: The payload is too large: it is not sent at all.

    """
    payload = task.payload.encode() if isinstance(task.payload, str) else bytes(task.payload)
    payload = encoded(codec, payload, payload_place(task.type))
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise UsageError(
            f"task {task.type}: a payload of {len(payload)} bytes, at most {PAYLOAD_BYTES_MAX}: "
            "keep large data elsewhere and submit where it is"
        )
    try:
        text, base64_text = payload.decode(), ""
    except UnicodeDecodeError:
        text, base64_text = "", base64.b64encode(payload).decode()
    retry = "" if task.retry is None else msgspec.json.encode(task.retry).decode()
    return _WireTask(task.type, text, base64_text, *_plain_of(task), retry, transaction)


def chunks_of(tasks: Iterable[NewTask], count_max: int) -> Iterator[list[NewTask]]:
    """Cut tasks into batches of at most `count_max` tasks, and so small that the broker takes each."""
    chunk: list[NewTask] = []
    size = 0
    for task in tasks:
        length = len(task.payload)
        if chunk and (len(chunk) >= count_max or size + length > _CHUNK_BYTES_MAX):
            yield chunk
            chunk, size = [], 0
        chunk.append(task)
        size += length
    if chunk:
        yield chunk


class Task(msgspec.Struct, frozen=True):
    """A task as it is; see `broker.machine.tables` for the fields.

    Attributes:
        status: "waiting", "delayed", "running", "finished", "error", "cancelled" or "prepared".
        payload: Only where one task is read, and if it is UTF-8; see `payload_bytes`.
        result: The same; see `result_bytes`.
        payload_gone: It has ended and cannot run again, and its payload has left the broker; `payload_bytes` is empty.

    """

    task_id: int
    tenant: str = ""
    type: str = ""
    status: str = ""
    attempts: int = 0
    max_attempts: int = 0
    at_most_once: bool = False
    priority: int = 0
    group: int = 0
    resources: dict[str, int] = {}
    slot: str = ""
    key: str = ""
    created_ms: int = 0
    start_ms: int = 0
    deadline_ms: int = 0
    timeout_ms: int = 0
    heartbeat_ms: int = 0
    code: str = ""
    mode: str = ""
    transaction: int = 0
    worker_id: str = ""
    assignment_id: int = 0
    assigned_ms: int = 0
    ended_ms: int = 0
    due_ms: int = 0
    cancel_ms: int = 0
    outcome: str = ""
    error: str = ""
    progress_ms: int = 0
    progress: float = -1.0
    progress_message: str = ""
    payload: str | None = None
    payload_base64: str | None = None
    result: str | None = None
    result_base64: str | None = None
    payload_gone: bool = False

    @property
    def has_ended(self) -> bool:
        """True if it is finished, in error or cancelled."""
        return self.status in ENDED_STATUSES

    @property
    def payload_bytes(self) -> bytes:
        """Payload that it was submitted with."""
        return _bytes(self.payload, self.payload_base64)

    @property
    def result_bytes(self) -> bytes:
        """Result that its run returned."""
        return _bytes(self.result, self.result_base64)


def opened_task(codec: PayloadCodec | None, task: Task) -> Task:
    """Return a task with its payload and result as its client and its worker had them.

    Raises:
        CodecError: The codec did not encode them, for this task.

    """
    if codec is None:
        return task
    changed: dict[str, str | None] = {}
    if task.payload is not None or task.payload_base64 is not None:
        payload = decoded(codec, task.payload_bytes, payload_place(task.type))
        changed |= {"payload": None, "payload_base64": base64.b64encode(payload).decode()}
    if task.status == "finished":
        result = decoded(codec, task.result_bytes, result_place(task.task_id))
        changed |= {"result": None, "result_base64": base64.b64encode(result).decode()}
    return msgspec.structs.replace(task, **changed)


def _bytes(text: str | None, encoded: str | None) -> bytes:
    if encoded is not None:
        return base64.b64decode(encoded)
    return (text or "").encode()
