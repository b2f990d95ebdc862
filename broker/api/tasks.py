"""Tasks over HTTP."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from broker.api.call import ApiRequest
from broker.api.documents import Task, TaskList, as_document, document_type, status_word, task_document, task_page
from broker.api.routes import Access, Route
from broker.api.task_bodies import BatchBody, ChangeBody, IdsBody, Name, SubmitBody, TaskId, spec_of
from broker.machine.commands import CancelTasks, ChangeTasks, DeleteDead, ReplayDead, SubmitTasks, TaskSpec
from broker.machine.limits import BATCH_TASKS_MAX, NAME_BYTES_MAX
from broker.machine.queries import ExplainTask, GetTask, ListTasks
from broker.machine.replies import Changed, Refusal, TasksSubmitted
from broker.machine.statuses import ENDED, TaskStatus
from broker.machine.views import ExplanationView, Nothing, TaskPageView, TaskView
from ledger.http.problems import HttpProblem
from ledger.http.replies import NO_REVISION, HttpReply, json_reply
from ledger.http.turns import HEAVY_S

IDEMPOTENCY_HEADER = "Idempotency-Key"
_WAIT_S_MAX = 60
_SLICE_LOOKS = 1_000
_SLICE_TASKS = 1_000
_SLICES_MAX = 10
_WORDS = {status.name.lower(): int(status) for status in TaskStatus}
_KEY_SAYS = (
    IDEMPOTENCY_HEADER,
    f"Submitting again with the same key answers the same and submits nothing; at most {NAME_BYTES_MAX} bytes.",
)


class Accepted(msgspec.Struct, frozen=True):
    """A task was accepted: its id, and its state when it was."""

    task_id: int
    status: str


class RefusedTask(msgspec.Struct, frozen=True):
    """A task of a batch whose slot is taken: its place in the batch, 0 first, and the task that has the slot."""

    index: int
    slot_task_id: int


class AcceptedBatch(msgspec.Struct, frozen=True):
    """An id for each task of the batch, 0 for those refused."""

    task_ids: list[int]
    refused: list[RefusedTask]


class ChangedTasks(msgspec.Struct, frozen=True):
    """Tasks changed now, those whose worker was asked to cancel, and those that had ended or are not there."""

    count: int
    asked: int
    passed_over: int


class ReplayBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dead letters to replay: by id; else all that fit the rest, oldest first, at most 5,000 at once."""

    task_ids: Annotated[list[TaskId], Meta(max_length=BATCH_TASKS_MAX)] = []
    type: Name = ""
    outcome: Name = ""
    tenant: Name = ""


class TaskListQuery(msgspec.Struct, frozen=True):
    """Filters; what is not named may be anything.

    Attributes:
        status: One or more, with commas between them.
        type: Task type.
        worker: Worker id.
        slot: Slot.
        key: Key.
        tenant: Only of the administrator.
        after: Ids above this one (below, if the newest come first).
        limit: At most so many.
        order: "oldest" or "newest" first.

    """

    status: str = ""
    type: Name = ""
    worker: Name = ""
    slot: Name = ""
    key: Name = ""
    tenant: Name = ""
    after: Annotated[int, Meta(ge=0, le=2**53)] = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    order: Annotated[str, Meta(pattern="^(oldest|newest)$")] = "oldest"


class GetQuery(msgspec.Struct, frozen=True):
    """Time to wait for the task's end, in seconds, before it is shown as it is."""

    wait_s: Annotated[float, Meta(ge=0, le=_WAIT_S_MAX)] = 0.0


# ---- submitting


async def _submit(call: ApiRequest) -> HttpReply:
    body: SubmitBody = call.body
    spec = spec_of(body)
    call.take_tasks(1)
    command = SubmitTasks(
        call.tenant_to_write(body.tenant), [spec], _request_key(call), body.transaction, call.is_bound
    )
    submitted = await call.execute(command, TasksSubmitted)
    if submitted.refused:
        holder = submitted.refused[0][1]
        raise HttpProblem(
            409, Refusal.SLOT_TAKEN, f"slot {body.slot!r} is held by task {holder}, which has not ended",
            slot_task_id=holder,
        )  # fmt: skip
    task_id = submitted.first_task_id
    if call.span is not None:
        call.span.set(task=task_id)
    status = _first_status(spec, body.transaction)
    return HttpReply(
        201,
        b'{"task_id":%d,"status":"%s"}' % (task_id, status),
        ((b"location", b"/api/v1/tasks/%d" % task_id), (b"x-rsm-revision", b"%d" % task_id)),
    )


def _first_status(spec: TaskSpec, transaction: int) -> bytes:
    if transaction:
        return b"prepared"
    if spec.delay_ms or (spec.start_ms and spec.start_ms > time.time() * 1_000):
        return b"delayed"
    return b"waiting"


async def _submit_batch(call: ApiRequest) -> HttpReply:
    body: BatchBody = call.body
    tenant = call.tenant_to_write(_common_tenant(body))
    specs: list[TaskSpec] = []
    for first in range(0, len(body.tasks), _SLICE_TASKS):
        if first:
            await asyncio.sleep(0)  # Others are served in between.
        part = enumerate(body.tasks[first : first + _SLICE_TASKS], first)
        specs += [spec_of(task, f"$.tasks[{index}]") for index, task in part]
    call.take_tasks(len(specs))
    command = SubmitTasks(tenant, specs, _request_key(call), body.transaction, call.is_bound)
    submitted = await call.execute(command, TasksSubmitted)
    refused = [RefusedTask(index, holder) for index, holder in submitted.refused]
    if call.span is not None:
        call.span.set(task=submitted.first_task_id, count=submitted.count)
    revision = submitted.first_task_id + submitted.count - 1 if submitted.count else NO_REVISION
    return json_reply(AcceptedBatch(submitted.task_ids(len(specs)), refused), revision=revision)


def _common_tenant(body: BatchBody) -> str:
    """Return the tenant that the batch and its tasks name; a batch is one tenant's."""
    named = {task.tenant for task in body.tasks if task.tenant}
    if body.tenant:
        named.add(body.tenant)
    if len(named) > 1:
        raise HttpProblem(
            400, Refusal.INVALID, f"a batch is one tenant's; this one names {', '.join(sorted(named))[:500]}"
        )
    return named.pop() if named else ""


def _request_key(call: ApiRequest) -> str:
    raw = call.headers.get(b"idempotency-key")
    if raw is None:
        return ""
    if not 0 < len(raw) <= NAME_BYTES_MAX or not raw.isascii() or not raw.decode("ascii").isprintable():
        raise HttpProblem(
            400, Refusal.INVALID, f"{IDEMPOTENCY_HEADER}: 1 to {NAME_BYTES_MAX} printable ASCII characters"
        )
    return raw.decode("ascii")


# ---- looking


async def _list(call: ApiRequest) -> HttpReply:
    query: TaskListQuery = call.query
    statuses = sorted({_status(word) for word in query.status.split(",")}) if query.status else []
    wanted = ListTasks(
        call.tenant_to_see(query.tenant), statuses, query.type, query.worker, query.slot, query.key, query.after,
        query.limit, query.order == "newest",
    )  # fmt: skip
    page, revision = await _in_slices(call, wanted)
    return json_reply(task_page(page), revision=revision)


async def _in_slices(call: ApiRequest, wanted: ListTasks) -> tuple[TaskPageView, int]:
    """Return a page that is looked for a thousand tasks at a time, others being served in between.

    Each slice is of the state as it is by then, and ids rise: no task that is there all along is missed or told twice.
    """
    found: list[TaskView] = []
    slices = _SLICES_MAX
    while True:
        slices -= 1
        rest = msgspec.structs.replace(wanted, limit=wanted.limit - len(found), looks_max=_SLICE_LOOKS)
        async with call.shared.turns.turn(call.turn_key, HEAVY_S) as turn:
            began_s = time.perf_counter()
            page, revision = await call.expect(rest, TaskPageView, "such task")
            turn.cost_s = time.perf_counter() - began_s
        found += page.tasks
        if not page.next or len(found) >= wanted.limit or not slices:
            return TaskPageView(found, page.next), revision
        wanted = msgspec.structs.replace(wanted, after=page.next)


def _status(word: str) -> int:
    status = _WORDS.get(word.strip())
    if status is None:
        raise HttpProblem(400, Refusal.INVALID, f"unknown status {word[:50]!r}; known are {', '.join(_WORDS)}")
    return status


async def _get(call: ApiRequest) -> HttpReply:
    task, revision = await _found(call)
    wait_s: float = call.query.wait_s
    if wait_s and task.status not in ENDED:
        work = asyncio.get_running_loop().create_task(
            call.shared.broker.wait_task(call.tenant_to_see(), task.task_id, wait_s)
        )
        waited = await call.race(work)
        if waited is None:
            task, revision = await _found(call)
        elif isinstance(waited, Nothing):
            raise _no_task(task.task_id)
        else:
            task, revision = waited, NO_REVISION
    return json_reply(task_document(task), revision=revision)


async def _found(call: ApiRequest) -> tuple[TaskView, int]:
    task_id = call.number(call.values[0], "a task id")
    result, revision = await call.ask(GetTask(call.tenant_to_see(), task_id))
    if not isinstance(result, TaskView):
        raise _no_task(task_id)
    return result, revision


def _no_task(task_id: int) -> HttpProblem:
    what = f"there is no task {task_id}: it never was, it is another tenant's, or it was purged"
    return HttpProblem(404, "not-found", what)


async def _payload(call: ApiRequest) -> HttpReply:
    task, revision = await _found(call)
    if task.payload_gone:
        raise HttpProblem(
            410, "payload-gone", f"task {task.task_id} is {status_word(task.status)} and cannot run again: its payload "
            "has left the broker", task_status=status_word(task.status),
        )  # fmt: skip
    return _raw(task.payload, revision)


async def _result(call: ApiRequest) -> HttpReply:
    task, revision = await _found(call)
    if task.status != TaskStatus.FINISHED:
        raise HttpProblem(
            409, "no-result", f"task {task.task_id} is {status_word(task.status)}: only finished tasks have a result",
            task_status=status_word(task.status),
        )  # fmt: skip
    return _raw(task.result, revision)


def _raw(content: bytes, revision: int) -> HttpReply:
    # As bytes and nothing else: what a tenant wrote is never shown as a page of this origin.
    headers = ((b"x-rsm-revision", b"%d" % revision), (b"content-disposition", b"attachment"))
    return HttpReply(200, content, headers, b"application/octet-stream")


async def _explain(call: ApiRequest) -> HttpReply:
    task_id = call.number(call.values[0], "a task id")
    result, revision = await call.ask(ExplainTask(call.tenant_to_see(), task_id))
    if not isinstance(result, ExplanationView):
        raise _no_task(task_id)
    return json_reply(as_document(result), revision=revision)


# ---- changing


async def _cancel_one(call: ApiRequest) -> HttpReply:
    task_id = call.number(call.values[0], "a task id")
    changed = await call.execute(CancelTasks(call.tenant_to_see(), [task_id]), Changed)
    return await _about_one(call, task_id, changed)


async def _cancel_many(call: ApiRequest) -> HttpReply:
    body: IdsBody = call.body
    return _changed(await call.execute(CancelTasks(call.tenant_to_see(), body.task_ids), Changed))


async def _change(call: ApiRequest) -> HttpReply:
    body: ChangeBody = call.body
    task_id = call.number(call.values[0], "a task id")
    if body == ChangeBody():
        raise HttpProblem(400, Refusal.INVALID, "name at least one change: priority, group, resources, deadline_ms")
    command = ChangeTasks(
        call.tenant_to_see(), [task_id], body.priority, body.group, body.resources, body.deadline_ms, call.is_bound
    )
    return await _about_one(call, task_id, await call.execute(command, Changed))


async def _about_one(call: ApiRequest, task_id: int, changed: Changed) -> HttpReply:
    """Answer 404 for a task that is not there, as `GET` does: "passed over" may mean that it has ended."""
    if changed.passed_over:
        result, _ = await call.ask(GetTask(call.tenant_to_see(), task_id, whole=False))
        if not isinstance(result, TaskView):
            raise _no_task(task_id)
    return _changed(changed)


async def _replay(call: ApiRequest) -> HttpReply:
    body: ReplayBody = call.body
    if body.task_ids and (body.type or body.outcome):
        raise HttpProblem(400, Refusal.INVALID, "name tasks by id, or by type and outcome, not both")
    tenant = call.tenant_to_see(body.tenant)
    command = ReplayDead(tenant, body.task_ids, body.type, body.outcome, call.is_bound)
    return _changed(await call.execute(command, Changed))


async def _delete_dead(call: ApiRequest) -> HttpReply:
    body: IdsBody = call.body
    return _changed(await call.execute(DeleteDead(call.tenant_to_see(), body.task_ids), Changed))


def _changed(changed: Changed) -> HttpReply:
    return json_reply(ChangedTasks(changed.count, changed.asked, changed.passed_over))


def routes() -> list[Route]:
    """Return what is served of tasks."""
    base = "/api/v1/tasks"
    raw = (200, "application/octet-stream", "The bytes.")
    read: dict[str, Any] = {"access": Access.READ, "tag": "tasks"}
    write: dict[str, Any] = {"access": Access.WRITE, "tag": "tasks"}
    changed = [(200, ChangedTasks, "What was done.")]
    return [
        Route("POST", base, _submit, summary="Submit a task", body=SubmitBody, headers=[_KEY_SAYS],
              answers=[(201, Accepted, "It is in the log.")], problems=[409], **write),
        Route("POST", f"{base}/batch", _submit_batch, summary="Submit many tasks at once", body=BatchBody,
              headers=[_KEY_SAYS], answers=[(200, AcceptedBatch, "They are in the log.")], problems=[409], **write),
        Route("GET", base, _list, summary="List tasks by filter, by id", query=TaskListQuery,
              answers=[(200, TaskList, "A page.")], **read),
        Route("GET", f"{base}/{{task_id}}", _get, summary="Show a task, or wait until it has ended", query=GetQuery,
              answers=[(200, Task, "The task.")], problems=[404], **read),
        Route("GET", f"{base}/{{task_id}}/payload", _payload, summary="Get the payload of a task", answers=[raw],
              problems=[404, 410], **read),
        Route("GET", f"{base}/{{task_id}}/result", _result, summary="Get the result of a finished task", answers=[raw],
              problems=[404, 409], **read),
        Route("GET", f"{base}/{{task_id}}/explain", _explain, summary="Say why a task is waiting",
              answers=[(200, document_type(ExplanationView), "Why.")], problems=[404], **read),
        Route("PATCH", f"{base}/{{task_id}}", _change, summary="Change a task that has not ended", body=ChangeBody,
              answers=changed, problems=[404, 409], **write),
        Route("POST", f"{base}/{{task_id}}/cancel", _cancel_one, summary="Cancel a task", answers=changed,
              problems=[404], **write),
        Route("POST", f"{base}/cancel", _cancel_many, summary="Cancel tasks", body=IdsBody, answers=changed, **write),
        Route("POST", "/api/v1/dead-letters/replay", _replay, summary="Have dead letters wait again", body=ReplayBody,
              answers=changed, problems=[404, 409], **write),
        Route("POST", "/api/v1/dead-letters/delete", _delete_dead, summary="Forget dead letters before their time",
              body=IdsBody, answers=changed, is_audited=True, **write),
    ]  # fmt: skip
