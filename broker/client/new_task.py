"""A task to submit, as a program writes it down, and as JSON carries it."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import TypedDict

import msgspec

from broker.core.limits import PAYLOAD_BYTES_MAX
from broker.core.policies import RetryPolicy
from ledger.errors import UsageError

__all__ = ["NewTask", "TaskOptions", "chunks_of", "wire_task"]

_CHUNK_BYTES_MAX = 2 * 1024 * 1024
"""Of the payloads of one batch: its records have to fit one entry of the log."""


class TaskOptions(TypedDict, total=False):
    """What may be said of a task beside its type and payload: see `NewTask`."""

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


class _WireTask(msgspec.Struct, frozen=True, omit_defaults=True):
    type: str
    payload: str = ""
    payload_base64: str = ""
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
    retry: str = ""
    transaction: int = 0


def wire_task(task: NewTask, transaction: int = 0) -> _WireTask:
    """Return what is encoded as JSON.

    Raises:
        UsageError: The payload is too large: it is not sent at all.

    """
    payload = task.payload.encode() if isinstance(task.payload, str) else bytes(task.payload)
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise UsageError(
            f"task {task.type}: a payload of {len(payload)} bytes, at most {PAYLOAD_BYTES_MAX}: "
            "keep large data elsewhere and submit where it is"
        )
    try:
        text, encoded = payload.decode(), ""
    except UnicodeDecodeError:
        text, encoded = "", base64.b64encode(payload).decode()
    retry = "" if task.retry is None else msgspec.json.encode(task.retry).decode()
    return _WireTask(
        task.type, text, encoded, task.at_most_once, task.max_attempts, task.priority, task.group, task.resources,
        task.slot, task.key, task.start_ms, task.delay_s, task.deadline_ms, task.ttl_s, task.timeout_s,
        task.heartbeat_s, task.code, task.mode, retry, transaction,
    )  # fmt: skip


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
