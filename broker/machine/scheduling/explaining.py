"""Explanation of a waiting task: the exact limit and who uses it up, or its place."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

from broker.machine.scheduling.model import Limit, TaskQueue, Waiting, WorkerState
from broker.machine.scheduling.scheduler_state import SchedulerState
from broker.machine.statuses import TaskStatus
from broker.machine.views import ExplanationView

_USERS_NAMED = 3


def explain(state: SchedulerState, task_id: int) -> ExplanationView:
    """Say why a waiting task waits.

    Raises:
        KeyError: It does not wait.

    """
    task = state.waiting[task_id]
    queue = task.queue
    reason, text = _held(state, task) or _closed(state, queue) or _unplaceable(state, queue) or ("runnable", "")
    place = _place(state, task)
    if reason in {"runnable", "workers-full"}:
        before = f"{_tasks(place)} of tenant {task.queue.tenant.name} {'is' if place == 1 else 'are'} before it"
        others = _others(state, task.queue)
        text = "; ".join(part for part in (text or "it can run", before, others) if part)
    return ExplanationView(int(TaskStatus.WAITING), reason, text, place)


def unserved_count(state: SchedulerState) -> int:
    """Return the number of waiting tasks that no connected worker serves, whatever else they wait for."""
    profiles = {id(worker.profile): worker.profile for worker in state.workers.values() if worker.profile is not None}
    return sum(
        task_class.waiting
        for task_class in state.classes.values()
        if task_class.waiting and all(profile.fit(task_class) is None for profile in profiles.values())
    )


def _tasks(count: int) -> str:
    return "1 task" if count == 1 else f"{count} tasks"


def _place(state: SchedulerState, task: Waiting) -> int:
    """Count the tasks of the tenant that come before a task, whatever class they are of."""
    return sum(_before(state, queue, task.order) for queue in task.queue.tenant.queues.values() if queue.count)


def _before(state: SchedulerState, queue: TaskQueue, order: int) -> int:
    if queue.size > queue.count:
        queue.compact(state.waiting)
    return (
        bisect_left(queue.fifo, order)
        + sum(other < order for other in queue.late)
        + sum(other < order for heap in queue.keyed.values() for other in heap)
    )


def _held(state: SchedulerState, task: Waiting) -> tuple[str, str] | None:
    queue = task.queue
    name, task_type = queue.tenant.name, queue.task_class.type
    if task.key and task.key in queue.held:
        of_type = "" if ("", task.key) in queue.tenant.held_keys else f" and type {task_type.name}"
        return "key-held", f"key {task.key} of tenant {name}{of_type} is held"
    for limit, what in (
        (state.hold, "everything"),
        (task_type.hold, f"type {task_type.name}"),
        (queue.tenant.hold, f"tenant {name}"),
        (queue.tenant.type_hold(task_type.name), f"type {task_type.name} of tenant {name}"),
    ):
        if limit.used_max is not None:
            return "held", f"{what} is held"
    return None


def _closed(state: SchedulerState, queue: TaskQueue) -> tuple[str, str] | None:
    for limit, amount in (*queue.limits, *queue.task_class.limits):
        if not limit.admits(amount):
            return limit.kind, _limit_text(state, limit, amount)
    return None


def _limit_text(state: SchedulerState, limit: Limit, amount: int) -> str:
    if limit.kind == "tenant-limit":
        return f"tenant {limit.tenant} runs {limit.used} of its {_tasks(limit.used_max or 0)}"
    if limit.kind == "tenant-type-limit":
        return f"tenant {limit.tenant} runs {limit.used} of its {_tasks(limit.used_max or 0)} of type {limit.type}"
    of = " and ".join(
        part for part in (limit.tenant and f"tenant {limit.tenant}", limit.type and f"type {limit.type}") if part
    )
    text = f"resource {limit.resource}{' of ' + of if of else ''}: {limit.used} of {limit.used_max} in use"
    users = [] if limit.tenant else _users(state, limit)
    if users:
        text += f" ({', '.join(users)})"
    return f"{text}, this task needs {amount}"


def _users(state: SchedulerState, limit: Limit) -> list[str]:
    """Return who uses most of a resource."""
    uses = sorted(
        (-other.used, other.tenant)
        for (resource, tenant, task_type), other in state.limits.items()
        if resource == limit.resource and tenant and task_type == limit.type and other.used
    )
    named = [f"tenant {tenant} {-used}" for used, tenant in uses[:_USERS_NAMED]]
    return [*named, f"{len(uses) - _USERS_NAMED} more tenants"] if len(uses) > _USERS_NAMED else named


def _unplaceable(state: SchedulerState, queue: TaskQueue) -> tuple[str, str] | None:
    """Return why no worker can take a task of a queue now, or None if one can."""
    task_class = queue.task_class
    serving = [worker for worker in state.workers.values() if worker.fit(task_class) is not None]
    if not serving:
        return "no-worker", _nobody(state, queue)
    serving = [worker for worker in serving if worker.may_run(queue.tenant.name)]
    if not serving:
        kind = f"group {task_class.group} and type {task_class.type.name}"
        return "no-worker", f"no connected worker that serves {kind} may run tasks of tenant {queue.tenant.name}"
    obstacles = Counter(_obstacle(worker, queue) for worker in serving)
    if obstacles[""]:
        return None
    # Named is what stands in the way on most of them; of equals the first.
    reason = max(("workers-full", "worker-resource", "tenant-share"), key=lambda word: obstacles[word])
    which = f"the {len(serving)} workers that serve it" if len(serving) > 1 else "the worker that serves it"
    task_type = task_class.type.name
    if reason == "workers-full":
        fits = [(worker, worker.fit(task_class)) for worker in serving]
        free = sum(worker.profile.threads - worker.running for worker in serving if worker.profile)
        if free > 0:
            threads = sum(fit.threads for _, fit in fits if fit)
            return reason, f"all {threads} threads for type {task_type} of {which} are busy"
        threads = sum(worker.profile.threads for worker in serving if worker.profile)
        return reason, f"all {threads} threads of {which} are busy"
    if reason == "worker-resource":
        needs = ", ".join(sorted(set(_local_needs(serving, queue))))
        return reason, f"no worker has enough left: {needs}"
    return reason, f"tenant {queue.tenant.name} has its share of the threads for type {task_type} on {which}"


def _obstacle(worker: WorkerState, queue: TaskQueue) -> str:
    """Return what keeps a worker that serves a class from taking a task of a queue now; "" = nothing."""
    task_class = queue.task_class
    task_type = task_class.type.name
    fit = worker.fit(task_class)
    profile = worker.profile
    assert fit is not None
    assert profile is not None
    if worker.running >= profile.threads or worker.by_type.get(task_type, 0) >= fit.threads:
        return "workers-full"
    if not worker.has_room(fit, task_type):
        return "worker-resource"
    return "" if worker.has_share(fit, queue.tenant.name, task_type) else "tenant-share"


def _local_needs(serving: list[WorkerState], queue: TaskQueue) -> Iterator[str]:
    for worker in serving:
        fit = worker.fit(queue.task_class)
        for name, amount, most in fit.amounts if fit else ():
            if worker.amounts.get(name, 0) + amount > most:
                yield f"resource {name}, of which this task needs {amount} on one worker"


def _nobody(state: SchedulerState, queue: TaskQueue) -> str:
    task_class = queue.task_class
    text = f"no connected worker serves group {task_class.group} and type {task_class.type.name}"
    offers = [worker.profile.offer for worker in state.workers.values() if worker.profile is not None]
    if any(offer.rank_of(task_class.group) is not None and offer.threads_for(task_class.type.name) for offer in offers):
        needs = ", ".join(f"{amount} of {name}" for name, amount in task_class.resources)
        return f"{text} and has {needs}"
    return text


def _others(state: SchedulerState, queue: TaskQueue) -> str:
    """Say how many tasks of others could run on the workers that serve a queue."""
    profiles = {id(worker.profile): worker.profile for worker in state.workers.values() if worker.profile is not None}
    serving = [
        profile
        for profile in profiles.values()
        if profile.fit(queue.task_class) is not None and profile.may_run(queue.tenant.name)
    ]
    tenants: set[str] = set()
    tasks = 0
    for task_class in state.active:
        if task_class.closed_limit(state.version) is None and (
            rivals := [profile for profile in serving if profile.fit(task_class) is not None]
        ):
            for entry in task_class.heap:
                other = entry[4]
                if other.entry is not entry or other.tenant is queue.tenant:
                    continue
                can_meet = any(profile.may_run(other.tenant.name) for profile in rivals)
                if can_meet and other.count and other.closed_limit() is None:
                    tenants.add(other.tenant.name)
                    tasks += other.count
    if not tasks:
        return ""
    whose = "1 other tenant" if len(tenants) == 1 else f"{len(tenants)} other tenants"
    return f"{_tasks(tasks)} of {whose} wait for the same workers"
