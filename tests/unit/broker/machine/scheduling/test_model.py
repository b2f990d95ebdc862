"""Objects of the scheduler: what each one keeps true by itself."""

from __future__ import annotations

import random

import pytest

from broker.machine.policies import TenantPolicy, WorkerOffer
from broker.machine.scheduling.model import (
    ID_MASK,
    QUANTUM_MS,
    WAITS_KEPT,
    FairShare,
    Fit,
    Limit,
    Profile,
    TaskClass,
    TaskQueue,
    TaskType,
    TenantState,
    VirtualClock,
    Waiting,
    WorkerState,
    order_of,
)
from tests.unit.broker.machine.scheduling.brute_force import Checked

# ---- Limits: what they admit


@pytest.mark.parametrize(("used_max", "used", "amount", "is_open"), [
    (None, 99, 5, True), (3, 2, 1, True), (3, 2, 2, False), (0, 0, 1, False), (2, 5, 1, False),
])  # fmt: skip
def test_a_limit_admits_what_its_limit_leaves(used_max, used, amount, is_open):
    limit = Limit("resource", resource="db")
    limit.used_max, limit.used = used_max, used
    assert limit.admits(amount) == is_open


# ---- Virtual time: what is charged, when, and from where a newcomer starts

NOW_MS = 1_700_000_000_000


@pytest.fixture
def share():
    return FairShare("a", 1.0, VirtualClock())


def test_a_running_task_is_charged_as_time_goes_on(share):
    share.start(0, NOW_MS)
    assert share.virtual_time(NOW_MS) == QUANTUM_MS
    assert share.virtual_time(NOW_MS + 100) == QUANTUM_MS + 100


def test_what_is_expected_is_charged_ahead_and_what_runs_longer_after_it(share):
    share.start(500, NOW_MS)
    assert share.virtual_time(NOW_MS) == share.virtual_time(NOW_MS + 500) == QUANTUM_MS + 500
    assert share.virtual_time(NOW_MS + 700) == QUANTUM_MS + 700


@pytest.mark.parametrize("took_ms", [0, 200, 500, 900])
def test_an_end_settles_what_the_task_really_took(share, took_ms):
    share.start(500, NOW_MS)
    share.end("t", 500, NOW_MS, NOW_MS + took_ms)
    assert share.virtual_time(NOW_MS + 10_000) == QUANTUM_MS + took_ms
    assert (share.running, share.expected_ms, share.started_ms) == (0, 0, 0)


def test_service_counts_by_the_weight_at_its_time(share):
    share.start(0, NOW_MS)
    share.set_weight(4.0, NOW_MS + 100)
    assert share.virtual_time(NOW_MS + 500) == QUANTUM_MS + 100 + 400 / 4


def test_two_tasks_are_charged_twice(share):
    share.start(0, NOW_MS)
    share.start(0, NOW_MS + 50)
    assert share.virtual_time(NOW_MS + 100) == 2 * QUANTUM_MS + 100 + 50


def test_a_newcomer_is_raised_and_never_lowered(share):
    share.raise_to(1_000, NOW_MS)
    assert share.virtual_time(NOW_MS) == 1_000
    share.raise_to(10, NOW_MS)
    assert share.virtual_time(NOW_MS) == 1_000


def test_what_is_resumed_is_charged_from_the_next_event_on(share):
    share.resume(NOW_MS - 3_600_000)
    assert share.virtual_time(NOW_MS) == 0
    share.start(0, NOW_MS)
    assert share.virtual_time(NOW_MS + 100) == QUANTUM_MS + 200


def test_expected_is_the_mean_of_the_last_durations(share):
    for took_ms in (1_000, *[100] * 60):
        share.start(0, NOW_MS)
        share.end("t", 0, NOW_MS, NOW_MS + took_ms)
    assert share.durations["t"] == pytest.approx(100, rel=0.05)


def test_a_clock_that_stands_still_or_goes_back_charges_nothing(share):
    share.start(0, NOW_MS)
    share.settle(NOW_MS - 500)
    assert share.virtual_time(NOW_MS - 500) == QUANTUM_MS
    share.end("t", 0, NOW_MS, NOW_MS - 100)
    assert share.virtual_time(NOW_MS) == QUANTUM_MS


# ---- Classes: entries that are void do not pile up


def test_the_expected_duration_of_a_type_follows_its_tasks():
    task_type = TaskType("t")
    assert task_type.duration < 0
    task_type.learn(800)
    assert task_type.duration == 800
    for _ in range(60):
        task_type.learn(0)
    assert task_type.duration == pytest.approx(0, abs=1)


def test_void_entries_of_queues_and_workers_do_not_pile_up():
    checked = Checked()
    for n in range(3):
        checked.worker(f"w{n}", WorkerOffer(threads_max=4))
    for tenant in "ab":
        checked.submit(tenant, count=600)
    checked.dispatch(check=False)
    for round_ in range(400):
        # Every other task ends earlier than those before it: its tenant is put right in the heap.
        checked.now_ms += 1_000 if round_ % 2 else 1
        checked.end(min(checked.running))
        checked.dispatch(check=False)
    (task_class,) = checked.scheduler._state.classes.values()
    assert len(task_class.heap) < 100
    assert len(task_class.room) < 100
    checked.check_limits()


def test_workers_that_come_and_go_leave_nothing_in_a_class():
    checked = Checked()
    checked.submit()
    checked.hold("", "", "", True)
    for n in range(500):
        checked.worker(f"w{n}", WorkerOffer(threads_max=4))
        checked.worker(f"w{n}", None)
    (task_class,) = checked.scheduler._state.classes.values()
    assert len(task_class.room) < 100
    assert not checked.scheduler._state.workers


# ---- Queues: order, keys that are held, and what is left behind


class Tasks:
    """A queue and what waits in it."""

    def __init__(self) -> None:
        virtual_clock = VirtualClock()
        share = FairShare("a", 1.0, virtual_clock)
        self.queue = TaskQueue(TenantState("a", share), TaskClass(1, TaskType("t"), (), virtual_clock), share, 1)
        self.waiting: dict[int, Waiting] = {}

    def add(self, task_id: int, priority: int = 0, key: str = "") -> None:
        order = order_of(task_id, priority)
        self.waiting[task_id] = Waiting(self.queue, order, 0, key)
        self.queue.add(order, key)

    def remove(self, task_id: int) -> None:
        self.queue.forget(self.waiting.pop(task_id).order, self.waiting)

    def head(self) -> int | None:
        order = self.queue.head(self.waiting)
        return None if order is None else order & ID_MASK

    def drain(self) -> list[int]:
        ids = []
        while (task_id := self.head()) is not None:
            ids.append(task_id)
            self.remove(task_id)
        return ids


@pytest.fixture
def tasks():
    return Tasks()


@pytest.mark.parametrize("priority", [-1_000_000, -1, 0, 1, 1_000_000])
def test_an_order_names_its_task(priority):
    for task_id in (1, 2**31, 2**62):
        assert order_of(task_id, priority) & ID_MASK == task_id
        assert order_of(task_id, priority) < order_of(1, priority - 1)


@pytest.mark.parametrize("seed", range(20))
def test_tasks_leave_by_priority_and_id_however_they_came(seed):
    rng = random.Random(seed)
    tasks = Tasks()
    priorities = {task_id: rng.choice([-1, 0, 0, 0, 2]) for task_id in rng.sample(range(1, 500), 200)}
    for task_id, priority in priorities.items():
        tasks.add(task_id, priority, rng.choice(["", "", "k", "l"]))
    for task_id in rng.sample(list(priorities), 60):
        tasks.remove(task_id)
        if rng.random() < 0.5:
            priorities[task_id] = rng.choice([0, 1])
            tasks.add(task_id, priorities[task_id])
        else:
            del priorities[task_id]
    assert tasks.drain() == sorted(priorities, key=lambda task_id: (-priorities[task_id], task_id))
    assert tasks.queue.size == 0


def test_held_keys_are_passed_over_and_come_back_to_their_place(tasks):
    for task_id, key in enumerate(["k", "", "k", "l"], start=1):
        tasks.add(task_id, key=key)
    tasks.queue.hold("k", is_held=True)
    assert tasks.head() == 2
    assert tasks.queue.hold("k", is_held=False)
    assert tasks.drain() == [1, 2, 3, 4]


def test_a_queue_of_held_keys_alone_has_nothing_to_give(tasks):
    tasks.add(1, key="k")
    tasks.queue.hold("k", is_held=True)
    assert tasks.head() is None
    tasks.add(2, key="k")
    assert tasks.head() is None
    assert tasks.queue.hold("k", is_held=False)
    assert tasks.drain() == [1, 2]


def test_letting_go_of_a_key_without_tasks_brings_nothing_back(tasks):
    tasks.queue.hold("k", is_held=True)
    assert not tasks.queue.hold("k", is_held=False)


def test_what_is_gone_is_dropped_when_there_is_too_much_of_it(tasks):
    for task_id in range(1, 1_001):
        tasks.add(task_id, key="k" if task_id % 2 else "")
    for task_id in range(1_000, 1, -1):
        tasks.remove(task_id)
    assert tasks.queue.size < 200
    assert tasks.drain() == [1]


# ---- Tenants: their limits, and the waits that are remembered


def made() -> TenantState:
    return TenantState("a", FairShare("a", 1.0, VirtualClock()))


def test_the_last_waits_are_remembered_in_ascending_order():
    tenant = made()
    assert tenant.last_waits() == []
    for wait_ms in (30, 10, -5):
        tenant.note_wait(wait_ms)
    assert tenant.last_waits() == [0, 10, 30]
    for wait_ms in range(WAITS_KEPT):
        tenant.note_wait(1_000 + wait_ms)
    assert tenant.last_waits() == list(range(1_000, 1_000 + WAITS_KEPT))
    assert tenant.dispatched == WAITS_KEPT + 3


def test_the_cap_of_a_type_is_that_of_the_policy_whenever_the_type_is_first_seen():
    tenant = made()
    tenant.policy = TenantPolicy(running_max_by_type={"mail": 3, "free": 0})
    assert tenant.type_cap("mail").used_max == 3
    assert tenant.type_cap("free").used_max is None
    assert tenant.type_cap("other").used_max is None
    assert tenant.type_cap("mail") is tenant.type_cap("mail")
    assert tenant.type_hold("mail") is tenant.type_hold("mail")


# ---- Workers: which classes find a fit on them, and when there is room


def task_class(group: int = 1, kind: str = "mail", **resources: int) -> TaskClass:
    return TaskClass(group, TaskType(kind), tuple(sorted(resources.items())), VirtualClock())


@pytest.mark.parametrize(
    ("offer", "fit"),
    [
        (WorkerOffer(threads_max=8), Fit(0, 8, (), 0)),
        (WorkerOffer(threads_max=8, threads_by_type={"mail": 3}), Fit(0, 3, (), 0)),
        (WorkerOffer(threads_max=8, threads_by_type={"video": 3}), None),
        (WorkerOffer(threads_max=8, any_type_threads=2), Fit(0, 2, (), 0)),
        (WorkerOffer(threads_max=8, groups=(5, 1, 0)), Fit(1, 8, (), 0)),
        (WorkerOffer(threads_max=8, groups=(5, 0)), Fit(1, 8, (), 0)),
        (WorkerOffer(threads_max=8, groups=(5, 0), excluded_groups=(1,)), None),
        (WorkerOffer(threads_max=0), None),
        (WorkerOffer(threads_max=8, resources={"gpu": 2, "x": 0}), Fit(0, 8, (("gpu", 1, 2),), 0)),
        (WorkerOffer(threads_max=8, resources={"gpu": 0}), None),
        (WorkerOffer(threads_max=8, tenant_share_percent=30), Fit(0, 8, (), 2)),
        (WorkerOffer(threads_max=8, tenant_share_percent=1), Fit(0, 8, (), 1)),
    ],
)
def test_a_fit_is_what_an_offer_says_of_a_class(offer, fit):
    assert Profile(offer).fit(task_class(gpu=1)) == fit


def test_a_worker_counts_what_runs_on_it():
    worker = WorkerState("w", 1)
    worker.profile = Profile(WorkerOffer(threads_max=4, threads_by_type={"mail": 2}, resources={"gpu": 3}))
    kind = task_class(gpu=2)
    fit = worker.fit(kind)
    assert fit is not None
    assert worker.has_room(fit, "mail")
    worker.start("a", kind, 2)
    assert (worker.load, worker.last_use, worker.by_type, worker.amounts) == (0.25, 2, {"mail": 1}, {"gpu": 2})
    assert not worker.has_room(fit, "mail")
    worker.end("a", kind)
    assert (worker.load, worker.by_type, worker.amounts) == (0.0, {}, {})


def test_a_tenant_has_its_share_of_a_type_and_others_theirs():
    worker = WorkerState("w", 1)
    worker.profile = Profile(WorkerOffer(threads_max=4, tenant_share_percent=25))
    worker.by_tenant = {}
    kind = task_class()
    fit = worker.fit(kind)
    assert fit is not None
    worker.start("a", kind, 2)
    assert not worker.has_share(fit, "a", "mail")
    assert worker.has_share(fit, "b", "mail")
    worker.end("a", kind)
    assert worker.has_share(fit, "a", "mail")


def test_a_worker_without_an_offer_has_neither_fits_nor_room():
    worker = WorkerState("w", 1)
    assert worker.fit(task_class()) is None
    assert not worker.has_room(Fit(0, 4, (), 0), "mail")
    assert worker.load == 1.0


def test_a_worker_bound_to_tenants_may_run_theirs_alone():
    worker = WorkerState("w", 1)
    assert not worker.may_run("a"), "it offers nothing yet"
    worker.profile = Profile(WorkerOffer(tenants=("a", "b")))
    assert [worker.may_run(tenant) for tenant in ("a", "b", "c", "")] == [True, True, False, False]
    worker.profile = Profile(WorkerOffer())
    assert worker.may_run("c")
