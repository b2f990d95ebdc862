"""Views as JSON objects: the structs of `broker.machine.views`, which are arrays on the wire, by field names.

States become words, counts by state objects of words. Payload and result are text where they are UTF-8, else base64.
The types are made from those of the core, so that the two cannot differ; OpenAPI is made from these.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec import UNSET, UnsetType

from broker.machine import views as shown
from broker.machine.statuses import TaskStatus, WorkerStatus
from broker.machine.views import TaskView

TASK_WORDS: dict[int, str] = {int(status): status.name.lower() for status in TaskStatus}
"""Words of tasks' states, by number."""
_WORKER_WORDS: dict[int, str] = {int(status): status.name.lower() for status in WorkerStatus}


def status_word(status: int) -> str:
    """Return the word of a task's state."""
    return TASK_WORDS.get(status, f"status-{status}")


def worker_word(status: int) -> str:
    """Return the word of a worker's state."""
    return _WORKER_WORDS.get(status, f"status-{status}")


def _task_counts(counts: dict[int, int]) -> dict[str, int]:
    return {status_word(status): count for status, count in sorted(counts.items())}


def _worker_counts(counts: dict[int, int]) -> dict[str, int]:
    return {worker_word(status): count for status, count in sorted(counts.items())}


_SHOWN: tuple[Any, ...] = tuple(getattr(shown, name) for name in shown.__all__ if name != "BrokerResult")
# (type, field) that is shown otherwise: as which type, by which function.
_SPECIAL: dict[tuple[Any, str], tuple[Any, Callable[[Any], Any]]] = {
    **{(one, "status"): (str, status_word) for one in _SHOWN},
    **{(one, "by_status"): (dict[str, int], _task_counts) for one in _SHOWN},
    (shown.WorkerView, "status"): (str, worker_word),
    (shown.OverviewView, "workers_by_status"): (dict[str, int], _worker_counts),
    (shown.Tenants, "next"): (str | None, lambda name: name or None),
    (shown.Slots, "next"): (str | None, lambda name: name or None),
}


def _is_shown(kind: Any) -> bool:
    return kind in _SHOWN


_TYPES: dict[Any, Any] = {}
_CONVERSIONS: dict[Any, list[tuple[int, Callable[[Any], Any]]]] = {}


def document_type(kind: Any) -> Any:
    """Return the struct that a shown one is encoded as."""
    if kind not in _TYPES:
        _TYPES[kind] = _made_type(kind)
    return _TYPES[kind]


def _made_type(kind: Any) -> Any:
    hints = get_type_hints(kind)
    fields: list[Any] = []
    for field in msgspec.structs.fields(kind):
        special = _SPECIAL.get((kind, field.name))
        if special is not None:
            fields.append((field.name, special[0]))
        else:
            fields.append((field.name, _document_hint(hints[field.name])))
    name = kind.__name__.removesuffix("View")
    return msgspec.defstruct(name, fields, frozen=True, module=__name__, namespace={"__doc__": kind.__doc__})


def _document_hint(hint: Any) -> Any:
    if _is_shown(hint):
        return document_type(hint)
    inner: tuple[Any, ...] = get_args(hint)
    if len(inner) == 1 and _is_shown(inner[0]):
        item: Any = document_type(inner[0])
        return list[item]
    return hint


def _each(values: list[Any]) -> list[Any]:
    return [as_document(value) for value in values]


def _conversions(kind: Any) -> list[tuple[int, Callable[[Any], Any]]]:
    """Return (place, function) of the fields that are shown otherwise."""
    known = _CONVERSIONS.get(kind)
    if known is not None:
        return known
    found: list[tuple[int, Callable[[Any], Any]]] = []
    hints = get_type_hints(kind)
    for place, field in enumerate(msgspec.structs.fields(kind)):
        special = _SPECIAL.get((kind, field.name))
        if special is not None:
            found.append((place, special[1]))
        elif _is_shown(hints[field.name]):
            found.append((place, as_document))
        elif len(get_args(hints[field.name])) == 1 and _is_shown(get_args(hints[field.name])[0]):
            found.append((place, _each))
    _CONVERSIONS[kind] = found
    return found


def as_document(value: Any) -> Any:
    """Return what is encoded for a shown struct."""
    values = list(msgspec.structs.astuple(value))
    for place, convert in _conversions(type(value)):
        values[place] = convert(values[place])
    return document_type(type(value))(*values)


# ---- tasks

_TASK_HINTS = get_type_hints(TaskView)
_CONTENT = {"payload", "result", "payload_gone"}
_TASK_NAMES = [field.name for field in msgspec.structs.fields(TaskView) if field.name not in _CONTENT]
_STATUS_PLACE = _TASK_NAMES.index("status")
_CONTENT_PLACE = TaskView.__struct_fields__.index("payload")

Task: Any = msgspec.defstruct(
    "Task",
    [
        *((name, str if name == "status" else _TASK_HINTS[name]) for name in _TASK_NAMES),
        ("payload", str | UnsetType, UNSET),
        ("payload_base64", str | UnsetType, UNSET),
        ("result", str | UnsetType, UNSET),
        ("result_base64", str | UnsetType, UNSET),
        ("payload_gone", bool | UnsetType, UNSET),
    ],
    frozen=True,
    module=__name__,
    namespace={
        "__doc__": "A task as it is; times are ms since 1970, 0 = none. Lists leave payload and result out. "
        "`payload_gone`: the task has ended and cannot run again, and its payload has left the broker."
    },
)


class TaskList(msgspec.Struct, frozen=True):
    """Tasks, and the `after` of the next page; null = there are no more."""

    tasks: list[Task]
    next: int | None


def task_document(task: TaskView, *, whole: bool = True) -> Any:
    """Return what is encoded for a task, with payload and result if `whole`."""
    told = msgspec.structs.astuple(task)
    values = [*told[:_CONTENT_PLACE], *told[_CONTENT_PLACE + len(_CONTENT) :]]
    values[_STATUS_PLACE] = status_word(task.status)
    if whole:
        payload = (UNSET, UNSET) if task.payload_gone else _text_or_base64(task.payload)
        values += (*payload, *_text_or_base64(task.result), task.payload_gone or UNSET)
    return Task(*values)


def task_page(page: shown.TaskPageView) -> TaskList:
    """Return what is encoded for a page of tasks."""
    return TaskList([task_document(task, whole=False) for task in page.tasks], page.next or None)


def _text_or_base64(content: bytes) -> tuple[str | UnsetType, str | UnsetType]:
    try:
        return content.decode(), UNSET
    except UnicodeDecodeError:
        return UNSET, base64.b64encode(content).decode()
