"""Why a task waits: the exact limit and who uses it up, or its place."""

from __future__ import annotations

import pytest

from broker.machine.policies import TenantPolicy, WorkerOffer
from tests.unit.broker.machine.scheduling.brute_force import Checked


@pytest.fixture
def checked():
    made = Checked()
    made.worker("w", WorkerOffer(threads_max=20))
    return made


def explained(checked: Checked, **task) -> tuple[str, str, int]:
    checked.dispatch()
    (task_id,) = checked.submit(**task)
    checked.dispatch()
    explanation = checked.scheduler.explain(task_id)
    return explanation.reason, explanation.text, explanation.place


def test_a_tenants_limit_is_named(checked):
    checked.tenant("acme", TenantPolicy(running_max=10))
    checked.submit("acme", count=12)
    assert explained(checked, tenant="acme") == ("tenant-limit", "tenant acme runs 10 of its 10 tasks", 2)


def test_a_tenants_limit_of_a_type_is_named(checked):
    checked.tenant("acme", TenantPolicy(running_max_by_type={"mail": 1}))
    checked.submit("acme", type="mail")
    reason, text, _ = explained(checked, tenant="acme", type="mail")
    assert (reason, text) == ("tenant-type-limit", "tenant acme runs 1 of its 1 task of type mail")


def test_a_resource_is_named_with_those_who_use_it(checked):
    checked.limit("db", "", "", 5)
    checked.submit("acme", resources=[("db", 3)])
    checked.submit("beta", resources=[("db", 2)])
    reason, text, place = explained(checked, resources=[("db", 1)])
    assert reason == "resource"
    assert text == "resource db: 5 of 5 in use (tenant acme 3, tenant beta 2), this task needs 1"
    assert place == 0


def test_a_resources_limit_of_a_tenant_and_type_is_named(checked):
    checked.limit("db", "acme", "mail", 1)
    checked.submit("acme", type="mail", resources=[("db", 1)])
    reason, text, _ = explained(checked, tenant="acme", type="mail", resources=[("db", 1)])
    assert reason == "resource"
    assert text == "resource db of tenant acme and type mail: 1 of 1 in use, this task needs 1"


@pytest.mark.parametrize(
    ("hold", "text"),
    [
        (("", ""), "everything is held"),
        (("", "mail"), "type mail is held"),
        (("acme", ""), "tenant acme is held"),
        (("acme", "mail"), "type mail of tenant acme is held"),
    ],
)
def test_a_hold_is_named(checked, hold, text):
    checked.hold(*hold, "", True)
    assert explained(checked, tenant="acme", type="mail")[:2] == ("held", text)


def test_a_held_key_is_named(checked):
    checked.hold("acme", "mail", "customer-1", True)
    reason, text, _ = explained(checked, tenant="acme", type="mail", key="customer-1")
    assert (reason, text) == ("key-held", "key customer-1 of tenant acme and type mail is held")


def test_that_nobody_serves_a_group_and_type_is_said(checked):
    checked.worker("w", WorkerOffer(threads_max=4, groups=(1,)))
    reason, text, _ = explained(checked, group=7, type="mail")
    assert (reason, text) == ("no-worker", "no connected worker serves group 7 and type mail")


def test_that_no_worker_is_large_enough_is_said(checked):
    checked.worker("w", WorkerOffer(threads_max=4, resources={"gpu": 1}))
    reason, text, _ = explained(checked, group=7, type="mail", resources=[("gpu", 2)])
    assert reason == "no-worker"
    assert text == "no connected worker serves group 7 and type mail and has 2 of gpu"


def test_busy_threads_are_counted_with_what_waits_for_them(checked):
    checked.worker("w", None)
    for n in range(3):
        checked.worker(f"v{n}", WorkerOffer(threads_max=5, groups=(9,)))
    checked.submit("b", group=9, count=20)
    checked.dispatch()
    checked.submit("c", group=9, count=4)
    checked.submit("d", group=8, count=4)
    reason, text, place = explained(checked, tenant="acme", group=9)
    assert (reason, place) == ("workers-full", 0)
    assert text == (
        "all 15 threads of the 3 workers that serve it are busy; 0 tasks of tenant acme are before it; "
        "9 tasks of 2 other tenants wait for the same workers"
    )


def test_busy_threads_of_a_type_are_counted(checked):
    checked.worker("w", WorkerOffer(threads_max=9, threads_by_type={"mail": 2}))
    checked.submit(type="mail", count=4)
    reason, text, place = explained(checked, type="mail")
    assert reason == "workers-full"
    assert text.startswith("all 2 threads for type mail of the worker that serves it are busy; 2 tasks of tenant a")
    assert place == 2


def test_a_workers_own_resource_is_named(checked):
    checked.worker("w", WorkerOffer(threads_max=9, resources={"gpu": 2}))
    checked.submit(resources=[("gpu", 1)])
    reason, text, _ = explained(checked, resources=[("gpu", 2)])
    assert reason == "worker-resource"
    assert text == "no worker has enough left: resource gpu, of which this task needs 2 on one worker"


def test_a_tenants_share_of_the_workers_is_named(checked):
    checked.worker("w", WorkerOffer(threads_max=10, tenant_share_percent=30))
    checked.submit("acme", type="mail", count=3)
    reason, text, _ = explained(checked, tenant="acme", type="mail")
    assert reason == "tenant-share"
    assert text == "tenant acme has its share of the threads for type mail on the worker that serves it"


def test_a_task_that_can_run_has_a_place(checked):
    ids = checked.submit("acme", count=3)
    explanation = checked.scheduler.explain(ids[2])
    assert (explanation.reason, explanation.place) == ("runnable", 2)
    assert explanation.text == "it can run; 2 tasks of tenant acme are before it"


def test_places_count_what_waits_in_other_classes_and_not_what_is_gone(checked):
    checked.hold("acme", "", "", True)
    ids = checked.submit("acme", count=5)
    checked.submit("acme", type="other", priority=1, count=2)
    (last,) = checked.submit("acme", key="k")
    checked.withdraw(ids[2])
    assert checked.scheduler.explain(last).place == 4 + 2
    assert checked.scheduler.explain(ids[3]).place == 2 + 2


def test_tasks_that_something_else_keeps_waiting_do_not_wait_for_the_same_workers(checked):
    checked.worker("w", WorkerOffer(threads_max=2))
    checked.tenant("capped", TenantPolicy(running_max=1))
    checked.submit("capped", count=5)
    checked.submit("b", count=3)
    _, text, _ = explained(checked, tenant="acme")
    assert text.endswith("; 2 tasks of 1 other tenant wait for the same workers")


def test_a_tenant_whose_tasks_no_worker_may_run_is_told_so(checked):
    checked.worker("w", WorkerOffer(threads_max=20, tenants=("beta",)))
    text = "no connected worker that serves group 1 and type t may run tasks of tenant acme"
    assert explained(checked, tenant="acme")[:2] == ("no-worker", text)


def test_nobody_is_named_as_before_a_task_who_cannot_run_where_it_does(checked):
    checked.worker("w", WorkerOffer(threads_max=1, tenants=("acme",)))
    checked.submit("beta", count=3)
    checked.submit("acme", count=1)
    reason, text, _ = explained(checked, tenant="acme")
    assert reason == "workers-full"
    assert "tenant beta" not in text
    assert "other tenant" not in text
