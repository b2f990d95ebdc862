"""Rows of a data frame as tasks of the broker.

The broker's command is written here as its bytes have it, since this package does not know the broker's:

    ``[8, [[1, tenant, [task, …]], …]]``    submit for tenants; a task is the array of the columns behind the tenant

tenant, type                     string
payload                          binary or string, optional
at_most_once                     boolean, optional
max_attempts, priority, group    integer, optional; null = the tenant's
resources                        map<string,int>, optional
slot, key, code, mode, retry     string, optional; retry = JSON of a retry policy
start_ms, delay_ms, deadline_ms, ttl_ms, timeout_ms, heartbeat_ms    integer, optional; null or 0 = none
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql.types import MapType, StructType

from connectors.errors import OptionError
from connectors.sink.chunks import RowLimits
from connectors.sink.columns import SinkColumn, bad_row, check_columns, values_of
from connectors.sink.options import RowKind, SinkOptions

_FOR_TENANTS, _SUBMIT, _SUBMITTED, _REFUSED = 8, 1, 1, 20
"""Kinds of the broker's messages."""
PAYLOAD_BYTES_MAX = 1024 * 1024
NAME_BYTES_MAX = 200
RETRY_BYTES_MAX = 4 * 1024
RESOURCES_MAX = 16
AMOUNT_MAX = 1_000_000_000
PRIORITY_MAX = 1_000_000
GROUP_MAX = 2**31 - 1
DURATION_MS_MAX = 100 * 366 * 24 * 3_600_000
TIME_MS_MAX = 253_402_300_799_999
"""The broker's bounds: it refuses a chunk as a whole, and names no row."""
_TASK_BYTES = 200
"""Bytes of a task beside its payload and its tenant, which the log has twice."""
_SOON_OVER = frozenset({"queue-full", "bytes-full", "memory-full", "draining"})


class _TaskColumn(NamedTuple):
    """A column, with the value that stands for null."""

    column: SinkColumn
    null: Any


# In the order of the broker's task.
_COLUMN_OF_TASK: dict[str, _TaskColumn] = {
    "type": _TaskColumn(SinkColumn.of_text(is_needed=True), None),
    "payload": _TaskColumn(SinkColumn.of_bytes(), b""),
    "at_most_once": _TaskColumn(SinkColumn.of_flags(), null=False),
    "max_attempts": _TaskColumn(SinkColumn.of_integers(), None),
    "priority": _TaskColumn(SinkColumn.of_integers(), None),
    "group": _TaskColumn(SinkColumn.of_integers(), None),
    "resources": _TaskColumn(SinkColumn((MapType,), "map<string,int>"), ()),
    "slot": _TaskColumn(SinkColumn.of_text(), ""),
    "key": _TaskColumn(SinkColumn.of_text(), ""),
    "start_ms": _TaskColumn(SinkColumn.of_integers(), 0),
    "delay_ms": _TaskColumn(SinkColumn.of_integers(), 0),
    "deadline_ms": _TaskColumn(SinkColumn.of_integers(), 0),
    "ttl_ms": _TaskColumn(SinkColumn.of_integers(), 0),
    "timeout_ms": _TaskColumn(SinkColumn.of_integers(), 0),
    "heartbeat_ms": _TaskColumn(SinkColumn.of_integers(), 0),
    "code": _TaskColumn(SinkColumn.of_text(), ""),
    "mode": _TaskColumn(SinkColumn.of_text(), ""),
    "retry": _TaskColumn(SinkColumn.of_text(), ""),
}
TASK_COLUMNS = {"tenant": SinkColumn.of_text(is_needed=True)} | {
    name: column.column for name, column in _COLUMN_OF_TASK.items()
}
_NAMES = [(at, name) for at, name in enumerate(_COLUMN_OF_TASK) if name in ("slot", "key", "code", "mode")]
_TIMES = [(at, name) for at, name in enumerate(_COLUMN_OF_TASK) if name.endswith("_ms")]
_MOMENTS = ("start_ms", "deadline_ms")
_control_of = re.compile(r"[\x00-\x1f\x7f]").search
_TYPE, _PAYLOAD, _RESOURCES, _RETRY = (
    list(_COLUMN_OF_TASK).index(name) for name in ("type", "payload", "resources", "retry")
)
_EITHER = [
    tuple((at, name) for at, name in _TIMES if name in pair)
    for pair in (("start_ms", "delay_ms"), ("deadline_ms", "ttl_ms"))
]
_BOUNDS = [
    (list(_COLUMN_OF_TASK).index(name), name, low, high)
    for name, low, high in (
        ("max_attempts", 0, AMOUNT_MAX),
        ("priority", -PRIORITY_MAX, PRIORITY_MAX),
        ("group", 1, GROUP_MAX),
    )
]

TenantTask = tuple[str, list[Any]]
"""A task of a tenant, in the order of the broker's columns."""


class TaskCommands:
    """Commands of the broker that submit tasks; see `RowCommands`.

    Args:
        options: Of the query.
        schema: Columns of the frame.

    Raises:
        OptionError: They are none of a task's.

    """

    limits = RowLimits(whole_rows=4_000, whole_bytes=2 * 1024 * 1024, chunk_rows=4_000)
    conflict_words = "were not submitted, since a task that has not ended has their slot"
    is_repeatable = False
    are_calls = False
    is_ordered = False

    def __init__(self, options: SinkOptions, schema: StructType) -> None:  # noqa: ARG002 - all kinds are made alike
        check_columns(RowKind.TASKS, schema, TASK_COLUMNS)
        resources = schema["resources"].dataType if "resources" in schema.names else None
        if resources is not None and resources.simpleString() not in {"map<string,int>", "map<string,bigint>"}:
            raise OptionError(
                f"sink ledger, as=tasks: column resources is {resources.simpleString()}, it must be map<string,int>: "
                "cast it"
            )
        self._row_counts: dict[int, int] = {}

    def items(self, batch: pa.RecordBatch, part: int) -> Iterator[tuple[TenantTask, int]]:
        """Yield the rows of a batch; a bad one is named before any is yielded."""
        first = self._row_counts.get(part, 0)
        count = batch.num_rows
        given = {name: values_of(batch.column(name), as_bytes=name == "payload") for name in batch.schema.names}
        columns = [given.get(name) or [column.null] * count for name, column in _COLUMN_OF_TASK.items()]
        nulls = [column.null for column in _COLUMN_OF_TASK.values()]
        made: list[tuple[TenantTask, int]] = []
        for number, (tenant, *values) in enumerate(zip(given["tenant"], *columns, strict=True), first):
            task = [null if value is None else value for value, null in zip(values, nulls, strict=True)]
            task[_RESOURCES] = dict(task[_RESOURCES])
            _check(part, number, tenant, task)
            made.append(((tenant, task), len(task[_PAYLOAD]) + len(task[_RETRY]) + 2 * len(tenant) + _TASK_BYTES))
        self._row_counts[part] = first + count
        yield from made

    def command(self, items: Sequence[TenantTask]) -> bytes:
        """Return the command of a chunk: the tasks of each tenant, in their order."""
        tasks: dict[str, list[Any]] = {}
        for tenant, task in items:
            tasks.setdefault(tenant, []).append(task)
        return msgspec.msgpack.encode((_FOR_TENANTS, [(_SUBMIT, tenant, some) for tenant, some in tasks.items()]))

    def joined(self, commands: Sequence[bytes]) -> bytes:
        """Return one command of several chunks."""
        submits = [submit for command in commands for submit in msgspec.msgpack.decode(command)[1]]
        return self.command([(tenant, task) for _, tenant, tasks in submits for task in tasks])

    def conflict_count(self, reply: bytes, row_count: int) -> int:
        """Return how many tasks were not submitted."""
        kind, _, *more = msgspec.msgpack.decode(reply) if reply else (0, 0)
        return row_count - int(more[0]) if kind == _SUBMITTED else 0

    def is_busy(self, reply: bytes) -> bool:
        """Return whether the broker takes no tasks for the time being."""
        kind, refusal, *_ = msgspec.msgpack.decode(reply)
        return kind == _REFUSED and refusal in _SOON_OVER


def _check(part: int, row: int, tenant: str | None, task: Sequence[Any]) -> None:
    """Check what is wrong whatever state the broker is in.

    Raises:
        BadRowError: It is.

    """
    if tenant is None or task[_TYPE] is None:
        raise bad_row(part, row, "tenant" if tenant is None else "type", "it is null")
    payload = task[_PAYLOAD]
    if len(payload) > PAYLOAD_BYTES_MAX:
        fault = f"a payload of {len(payload):,} bytes, at most {PAYLOAD_BYTES_MAX:,} are taken: keep it elsewhere"
        raise bad_row(part, row, "payload", fault)
    for name, value in (("tenant", tenant), ("type", task[_TYPE]), *((name, task[at]) for at, name in _NAMES)):
        is_missing = not value and name in ("tenant", "type")
        if is_missing or len(value.encode()) > NAME_BYTES_MAX or _control_of(value):
            fault = f"{value!r:.60} is no name: 1 to {NAME_BYTES_MAX} bytes of UTF-8 without control characters"
            raise bad_row(part, row, name, fault)
    for at, name in _TIMES:
        if not 0 <= task[at] <= (TIME_MS_MAX if name in _MOMENTS else DURATION_MS_MAX):
            raise bad_row(part, row, name, f"{task[at]} is no time in milliseconds")
    for (one, name), (other, other_name) in _EITHER:
        if task[one] and task[other]:
            raise bad_row(part, row, name, f"{other_name} is given too: give one of them")
    for at, name, low, high in _BOUNDS:
        if task[at] is not None and not low <= task[at] <= high:
            raise bad_row(part, row, name, f"{task[at]} is not from {low:,} to {high:,}")
    if task[_RESOURCES]:
        _check_resources(part, row, task[_RESOURCES])
    if task[_RETRY]:
        _check_retry(part, row, task[_RETRY])


def _check_resources(part: int, row: int, resources: Mapping[str, int | None]) -> None:
    if len(resources) > RESOURCES_MAX:
        raise bad_row(part, row, "resources", f"{len(resources):,} resources: a task may ask for {RESOURCES_MAX}")
    for name, amount in resources.items():
        if amount is None:
            raise bad_row(part, row, "resources", "an amount is null")
        if not 1 <= amount <= AMOUNT_MAX:
            raise bad_row(part, row, "resources", f"amount {amount} of {name!r:.60} is not from 1 to {AMOUNT_MAX:,}")
        if not name or len(name.encode()) > NAME_BYTES_MAX or _control_of(name) or "," in name or "=" in name:
            raise bad_row(part, row, "resources", f"{name!r:.60} is no name of a resource")


def _check_retry(part: int, row: int, retry: str) -> None:
    if len(retry) > RETRY_BYTES_MAX:
        raise bad_row(part, row, "retry", f"{len(retry):,} characters of JSON: {RETRY_BYTES_MAX:,} are the most")
    try:
        decoded = msgspec.json.decode(retry)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise bad_row(part, row, "retry", f"{retry!r:.60} is no JSON: {error}") from error
    if not isinstance(decoded, dict):
        raise bad_row(part, row, "retry", f"{retry!r:.60} is no JSON object")
