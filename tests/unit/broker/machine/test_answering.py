"""What the broker shows."""

from __future__ import annotations

import pytest

from broker.machine import commands as c
from broker.machine import queries as q
from broker.machine.policies import TenantPolicy, WorkerOffer
from broker.machine.replies import Refused
from broker.machine.views import Nothing
from tests.unit.broker.machine.driven_broker import START_MS, DrivenBroker

Spec = c.TaskSpec


@pytest.fixture
def broker() -> DrivenBroker:
    driven = DrivenBroker()
    driven.appear(offer=WorkerOffer(4))
    return driven


def test_a_tenant_sees_its_own_tasks_only(broker: DrivenBroker) -> None:
    (mine,) = broker.submit(Spec("mail"))
    (other,) = broker.submit(Spec("mail"), tenant="other")
    assert isinstance(broker.ask(q.GetTask("acme", other)), Nothing)
    assert isinstance(broker.ask(q.ExplainTask("acme", other)), Nothing)
    assert broker.listed(tenant="acme") == [mine]
    assert broker.listed(tenant="nobody") == []
    assert broker.listed() == [mine, other]


def test_the_overview_counts_by_status_type_and_worker(broker: DrivenBroker) -> None:
    broker.submit(*[Spec("mail")] * 5, Spec("sms", delay_ms=5))
    broker.now_ms += 10
    broker.submit(Spec("mail", delay_ms=500), tenant="other")
    broker.now_ms -= 10
    broker.fire()
    shown = broker.ask(q.GetOverview())
    assert shown.by_status == {0: 1, 1: 4, 5: 2}
    assert [(kind.type, kind.by_status) for kind in shown.types] == [("mail", {0: 1, 1: 4, 5: 1}), ("sms", {5: 1})]
    assert (shown.workers_by_status, shown.threads, shown.tenant_count) == ({0: 1}, 4, 2)
    assert shown.oldest_waiting_ms == START_MS
    mine = broker.ask(q.GetOverview("other"))
    assert (mine.by_status, mine.oldest_waiting_ms, mine.tenant_count) == ({5: 1}, 0, 1)
    assert broker.ask(q.GetOverview("nobody")).by_status == {}


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
