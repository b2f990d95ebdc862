"""What the broker shows."""

from __future__ import annotations

import pytest

from broker.core import commands as c
from broker.core import listing
from broker.core import queries as q
from broker.core.policies import TenantPolicy, WorkerOffer
from broker.core.replies import Refused
from broker.core.shown import Nothing, TaskPage
from broker.core.statuses import TaskStatus
from tests.unit.broker_core.driven_broker import START_MS, DrivenBroker

Spec = c.TaskSpec


@pytest.fixture
def broker() -> DrivenBroker:
    driven = DrivenBroker()
    driven.appear(offer=WorkerOffer(4))
    return driven


def pages(broker: DrivenBroker, **rest: object) -> list[list[int]]:
    """Return the ids of all pages."""
    found: list[list[int]] = []
    after = 0
    while True:
        page = broker.ask(q.ListTasks(**{"tenant": "", **rest, "after": after}))  # type: ignore[arg-type]
        assert isinstance(page, TaskPage)
        found.append([task.task_id for task in page.tasks])
        after = page.next
        if not after:
            return found


def test_a_tenant_sees_its_own_tasks_only(broker: DrivenBroker) -> None:
    (mine,) = broker.submit(Spec("mail"))
    (other,) = broker.submit(Spec("mail"), tenant="other")
    assert isinstance(broker.ask(q.GetTask("acme", other)), Nothing)
    assert isinstance(broker.ask(q.ExplainTask("acme", other)), Nothing)
    assert broker.listed(tenant="acme") == [mine]
    assert broker.listed(tenant="nobody") == []
    assert broker.listed() == [mine, other]


def test_pages_hold_every_task_once_in_both_directions(broker: DrivenBroker) -> None:
    ids = broker.submit(*[Spec("mail")] * 10)
    assert pages(broker, limit=4) == [ids[:4], ids[4:8], ids[8:]]
    assert pages(broker, limit=5) == [ids[:5], ids[5:]]
    backwards = ids[::-1]
    assert pages(broker, limit=4, newest_first=True) == [backwards[:4], backwards[4:8], backwards[8:]]
    assert pages(broker, limit=4, tenant="acme", newest_first=True) == [backwards[:4], backwards[4:8], backwards[8:]]


def test_tasks_are_listed_by_status_type_worker_slot_and_key(broker: DrivenBroker) -> None:
    ids = broker.submit(
        Spec("mail", slot="s"), Spec("sms", key="k"), Spec("mail", delay_ms=50), Spec("mail"), Spec("mail"), Spec("sms")
    )
    broker.fire()
    running = [one for one in ids if broker.status(one) == TaskStatus.RUNNING]
    assert len(running) == 4
    assert broker.listed(statuses=[TaskStatus.RUNNING]) == running
    assert broker.listed(statuses=[TaskStatus.RUNNING, TaskStatus.DELAYED]) == sorted([*running, ids[2]])
    assert broker.listed(worker_id="w") == running
    assert broker.listed(worker_id="w", type="sms") == [one for one in running if one in (ids[1], ids[5])]
    assert broker.listed(type="sms") == [ids[1], ids[5]]
    assert broker.listed(slot="s", tenant="acme") == broker.listed(slot="s") == [ids[0]]
    assert broker.listed(key="k") == [ids[1]]
    assert broker.listed(statuses=[99]) == []
    broker.end(ids[0])
    assert broker.listed(slot="s") == []
    assert broker.listed(slot="s", statuses=[TaskStatus.FINISHED]) == [ids[0]]
    assert broker.listed(worker_id="w", statuses=[TaskStatus.FINISHED]) == [ids[0]]


def test_a_page_of_a_rare_thing_ends_early_and_says_where_to_go_on(
    broker: DrivenBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_LOOKS_MAX", 3)
    ids = broker.submit(*[Spec("mail", key="k" if place in {0, 7} else "") for place in range(9)])
    found = pages(broker, key="k")
    assert [one for page in found for one in page] == [ids[0], ids[7]]
    assert len(found) == 3


def test_large_sets_are_gone_through_in_order(broker: DrivenBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "_SET_MAX", 3)
    ids = broker.submit(*[Spec("mail")] * 9)
    broker.fire()
    waiting = [one for one in ids if broker.status(one) == TaskStatus.WAITING]
    found = pages(broker, statuses=[TaskStatus.WAITING], limit=2)
    assert [one for page in found for one in page] == waiting


def test_ids_that_were_purged_are_passed_over(broker: DrivenBroker) -> None:
    for _ in range(40):
        ids = broker.submit(*[Spec("mail")] * 100)
        broker.run(c.CancelTasks("acme", ids))
    broker.pass_time(broker.rules.retention_ms)
    (last,) = broker.submit(Spec("mail"))
    assert broker.listed() == broker.listed(tenant="acme") == broker.listed(newest_first=True) == [last]
    broker.check()


def test_the_overview_counts_by_status_type_and_worker(broker: DrivenBroker) -> None:
    broker.submit(*[Spec("mail")] * 5, Spec("sms", delay_ms=5))
    broker.now_ms += 10
    broker.submit(Spec("mail", delay_ms=500), tenant="other")
    broker.now_ms -= 10
    broker.fire()
    shown = broker.ask(q.Overview())
    assert shown.by_status == {0: 1, 1: 4, 5: 2}
    assert [(kind.type, kind.by_status) for kind in shown.types] == [("mail", {0: 1, 1: 4, 5: 1}), ("sms", {5: 1})]
    assert (shown.workers_by_status, shown.threads, shown.tenant_count) == ({0: 1}, 4, 2)
    assert shown.oldest_waiting_ms == START_MS
    mine = broker.ask(q.Overview("other"))
    assert (mine.by_status, mine.oldest_waiting_ms, mine.tenant_count) == ({5: 1}, 0, 1)
    assert broker.ask(q.Overview("nobody")).by_status == {}


def test_workers_are_shown_with_what_they_run(broker: DrivenBroker) -> None:
    broker.submit(Spec("mail"), Spec("sms"), Spec("mail"))
    broker.fire()
    (shown,) = broker.ask(q.ListWorkers()).workers
    assert (shown.running, shown.running_by_type, shown.offer) == (3, {"mail": 2, "sms": 1}, WorkerOffer(4))


def test_tenants_are_listed_by_name_and_in_pages(broker: DrivenBroker) -> None:
    broker.run(c.SetTenant("b", TenantPolicy(weight=2)))
    for tenant in ("c", "a"):
        broker.submit(Spec("mail"), tenant=tenant)
    broker.fire()
    first = broker.ask(q.ListTenants("", "", 2))
    assert [tenant.tenant for tenant in first.tenants] == ["a", "b"]
    assert [tenant.tenant for tenant in broker.ask(q.ListTenants("", first.next, 2)).tenants] == ["c"]
    shown = broker.ask(q.ListTenants("a")).tenants[0]
    assert (shown.share, shown.dispatched, shown.by_status, shown.is_default) == (0.5, 1, {1: 1}, True)
    assert shown.wait_ms_p50 >= 0
    assert broker.ask(q.ListTenants("nobody")).tenants == []


def test_slots_are_listed_by_name_and_in_pages(broker: DrivenBroker) -> None:
    broker.submit(Spec("mail", slot="b"), Spec("mail", slot="a"), Spec("mail", slot="c"))
    broker.submit(Spec("mail", slot="a"), tenant="other")
    first = broker.ask(q.ListSlots("acme", "", 2))
    assert [slot.slot for slot in first.slots] == ["a", "b"]
    assert [slot.slot for slot in broker.ask(q.ListSlots("acme", first.next, 2)).slots] == ["c"]
    everything = broker.ask(q.ListSlots("", "", 3))
    rest = broker.ask(q.ListSlots("", everything.next, 3))
    assert [(slot.tenant, slot.slot) for slot in everything.slots + rest.slots] == [
        ("acme", "a"), ("acme", "b"), ("acme", "c"), ("other", "a"),
    ]  # fmt: skip


@pytest.mark.parametrize("text", [b"", b"\xc1", b"\x91\x63", b"\x93\x02\x01\x01", b"\x91" * 100_000])
def test_bytes_that_are_no_query_are_refused(broker: DrivenBroker, text: bytes) -> None:
    assert isinstance(broker.ask(text), Refused)


@pytest.mark.parametrize(
    "query",
    [q.ListTasks("", [-1], limit=-5), q.ListTasks("", after=-1), q.ListTasks("", limit=10**9), q.GetTask("", -1),
     q.ListTenants("", "", -1), q.ListSlots("", "", -1), q.GetCode(""), q.ExplainTask("", 0)],
)  # fmt: skip
def test_odd_numbers_in_queries_are_no_errors(broker: DrivenBroker, query: object) -> None:
    broker.submit(Spec("mail"))
    broker.ask(query)


def test_what_time_makes_due_is_never_more_than_was_asked_for(broker: DrivenBroker) -> None:
    broker.submit(*[Spec("mail", delay_ms=5)] * 3, *[Spec("mail", ttl_ms=5, delay_ms=9)] * 3)
    broker.now_ms += 10
    for limit in (1, 2, 3, 5):
        count = 0
        for record_type, fields in broker.machine.due(broker.now_ms, 0, limit):
            broker.log_record(record_type, fields)
            count += 1
        assert count <= limit
    broker.fire()
    broker.check()
