"""Lists of tasks: by filter, in pages, without going through everything."""

from __future__ import annotations

import pytest

from broker.machine import commands as c
from broker.machine import listing
from broker.machine.policies import WorkerOffer
from broker.machine.statuses import TaskStatus
from tests.unit.broker.machine.driven_broker import DrivenBroker, pages

Spec = c.TaskSpec


@pytest.fixture
def broker() -> DrivenBroker:
    driven = DrivenBroker()
    driven.appear(offer=WorkerOffer(4))
    return driven


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


def test_a_slot_that_nobody_has_is_on_an_empty_page_wherever_it_begins(broker: DrivenBroker) -> None:
    broker.submit(Spec("mail", slot="s"))
    for after in (-1, 0, 1, 2**40):
        assert broker.listed(slot="t", after=after) == broker.listed(slot="t", tenant="acme", after=after) == []
