"""Tasks come in: whole or refused whole."""

from __future__ import annotations

import msgspec
import pytest

from broker.machine import commands as c
from broker.machine import messages
from broker.machine.limits import BATCH_TASKS_MAX, NAME_BYTES_MAX, PAYLOAD_BYTES_MAX
from broker.machine.policies import TenantPolicy
from broker.machine.replies import Refusal, Refused, TasksSubmitted
from broker.machine.rules import BrokerRules
from broker.machine.statuses import TaskStatus
from broker.machine.tables import RecordType
from tests.unit.broker.machine.driven_broker import START_MS, DrivenBroker

Spec = c.TaskSpec


def refusal(reply: object) -> str:
    assert isinstance(reply, Refused), reply
    assert reply.reason
    return reply.refusal


def test_a_submitted_task_waits_with_the_revision_of_its_record_as_id() -> None:
    broker = DrivenBroker()
    ids = broker.submit(Spec("mail", b"a"), Spec("mail", b"b", priority=7, group=3, resources={"gpu": 2, "db": 1}))
    assert ids == [revision for revision, kind, _ in broker.log if kind == RecordType.TASK_SUBMITTED]
    shown = broker.get(ids[1])
    assert (shown.payload, shown.priority, shown.group, shown.resources) == (b"b", 7, 3, {"db": 1, "gpu": 2})
    assert (shown.status, shown.created_ms, shown.attempts) == (TaskStatus.WAITING, START_MS, 0)
    broker.check()


def test_what_a_task_does_not_name_is_its_tenants_also_when_that_changes_later() -> None:
    broker = DrivenBroker()
    broker.run(c.SetTenant("acme", TenantPolicy(group=5, priority=9, max_attempts=4)))
    named, unnamed = broker.submit(Spec("mail", group=2, priority=1, max_attempts=2), Spec("mail"))
    assert [(s.group, s.priority, s.max_attempts) for s in map(broker.get, (named, unnamed))] == [(2, 1, 2), (5, 9, 4)]
    broker.run(c.SetTenant("acme", TenantPolicy(group=6, priority=8)))
    assert [(s.group, s.priority) for s in map(broker.get, (named, unnamed))] == [(2, 1), (6, 8)]
    broker.check()


def test_the_same_request_key_answers_the_same_and_submits_nothing() -> None:
    broker = DrivenBroker()
    first = broker.run(c.SubmitTasks("acme", [Spec("mail"), Spec("mail")], "key-1"))
    assert broker.run(c.SubmitTasks("acme", [Spec("mail"), Spec("mail")], "key-1")) == first
    assert len(broker.machine.tasks) == 2
    assert broker.run(c.SubmitTasks("other", [Spec("mail")], "key-1")) != first
    broker.pass_time(broker.rules.request_retention_ms)
    assert broker.run(c.SubmitTasks("acme", [Spec("mail")], "key-1")) != first
    broker.check()


def test_a_taken_slot_is_skipped_in_a_batch_and_told() -> None:
    broker = DrivenBroker()
    (holder,) = broker.submit(Spec("mail", slot="s"))
    reply = broker.run(
        c.SubmitTasks("acme", [Spec("mail"), Spec("mail", slot="s"), Spec("mail", slot="t"), Spec("mail", slot="t")])
    )
    assert isinstance(reply, TasksSubmitted)
    assert reply.count == 2
    assert reply.refused == [(1, holder), (3, reply.first_task_id + 1)]
    assert reply.task_ids(4) == [reply.first_task_id, 0, reply.first_task_id + 1, 0]
    broker.check()


def test_a_batch_of_taken_slots_alone_submits_nothing_and_its_key_can_be_used_again() -> None:
    broker = DrivenBroker()
    (holder,) = broker.submit(Spec("mail", slot="s"))
    assert broker.run(c.SubmitTasks("acme", [Spec("mail", slot="s")], "k")) == TasksSubmitted(0, 0, [(0, holder)])
    broker.run(c.CancelTasks("acme", [holder]))
    assert broker.run(c.SubmitTasks("acme", [Spec("mail", slot="s")], "k")).count == 1


def test_very_many_taken_slots_refuse_the_batch_since_a_reply_has_a_bound() -> None:
    broker = DrivenBroker()
    specs = [Spec("mail", slot=f"slot {n}") for n in range(500)]
    broker.submit(*specs)
    assert refusal(broker.run(c.SubmitTasks("acme", specs))) == Refusal.SLOT_TAKEN


def test_slots_of_different_tenants_are_different_slots() -> None:
    broker = DrivenBroker()
    assert all(broker.submit(Spec("mail", slot="s"), tenant="one"))
    assert all(broker.submit(Spec("mail", slot="s"), tenant="two"))


@pytest.mark.parametrize(
    "spec",
    [
        Spec(""),
        Spec("x" * (NAME_BYTES_MAX + 1)),
        Spec("é" * (NAME_BYTES_MAX // 2 + 1)),
        Spec("line\nbreak"),
        Spec("mail", slot="s\x00"),
        Spec("mail", key="k" * 201),
        Spec("mail", mode="m" * 201),
        Spec("mail", priority=10**7),
        Spec("mail", priority=-(10**7)),
        Spec("mail", group=0),
        Spec("mail", group=-1),
        Spec("mail", group=2**31),
        Spec("mail", max_attempts=-1),
        Spec("mail", max_attempts=2**40),
        Spec("mail", resources={"gpu": -1}),
        Spec("mail", resources={"gpu": 2**63}),
        Spec("mail", resources={"a=b": 1}),
        Spec("mail", resources={"a,b": 1}),
        Spec("mail", resources={"": 1}),
        Spec("mail", resources={f"r{n}": 1 for n in range(17)}),
        Spec("mail", start_ms=-1),
        Spec("mail", start_ms=2**62),
        Spec("mail", delay_ms=-1),
        Spec("mail", delay_ms=2**62),
        Spec("mail", start_ms=5, delay_ms=5),
        Spec("mail", deadline_ms=-5),
        Spec("mail", ttl_ms=2**63),
        Spec("mail", deadline_ms=5, ttl_ms=5),
        Spec("mail", timeout_ms=-1),
        Spec("mail", heartbeat_ms=2**60),
        Spec("mail", retry="{"),
        Spec("mail", retry='{"factor": 1e999}'),
        Spec("mail", retry='{"jitter": 2}'),
        Spec("mail", retry='{"unknown": 2}'),
        Spec("mail", retry='{"backoff_ms": -1}'),
        Spec("mail", retry='{"rules": [{"error": "", "retry": false}]}'),
        Spec("mail", retry="[" * 4_000),
    ],
)
def test_a_field_out_of_bounds_refuses_the_whole_batch(spec: c.TaskSpec) -> None:
    broker = DrivenBroker()
    assert refusal(broker.run(c.SubmitTasks("acme", [Spec("mail"), spec]))) == Refusal.INVALID
    assert not broker.log


@pytest.mark.parametrize(
    "command",
    [
        c.SubmitTasks("", [Spec("mail")]),
        c.SubmitTasks("t" * 201, [Spec("mail")]),
        c.SubmitTasks("acme", []),
        c.SubmitTasks("acme", [Spec("mail")] * (BATCH_TASKS_MAX + 1)),
        c.SubmitTasks("acme", [Spec("mail")], "\tkey"),
        b"",
        b"\xc1",
        b"\x93\x01\xa4acme",
        b"\x92\x63\x01",
        msgspec.msgpack.encode([1, "acme", [["mail", b"", 0, None, float("nan")]]]),
        msgspec.msgpack.encode([1, "acme", [["mail", b"", False, 2**64 - 1]]]),
        messages.encode(c.SubmitTasks("acme", [Spec("mail")])).replace(b"acme", b"\xed\xa0\x80a"),
        messages.encode(c.SubmitTasks("acme", [Spec("mail")])).replace(b"mail", b"\xff\xfe\xfd\xfc"),
        b"\x91" * 100_000,
    ],
)
def test_bytes_that_are_no_sound_command_are_refused(command: object) -> None:
    broker = DrivenBroker()
    assert refusal(broker.run(command)) == Refusal.INVALID
    assert not broker.log


def test_a_payload_over_its_bound_is_refused_as_too_large() -> None:
    broker = DrivenBroker()
    assert broker.submit(Spec("mail", bytes(PAYLOAD_BYTES_MAX))) != [0]
    assert refusal(broker.run(c.SubmitTasks("acme", [Spec("mail", bytes(PAYLOAD_BYTES_MAX + 1))]))) == Refusal.TOO_LARGE


def test_a_batch_that_does_not_fit_an_entry_is_refused_as_too_large() -> None:
    broker = DrivenBroker()
    specs = [Spec("mail", bytes(PAYLOAD_BYTES_MAX))] * 4
    assert refusal(broker.run(c.SubmitTasks("acme", specs))) == Refusal.TOO_LARGE


def test_a_full_queue_of_a_tenant_or_of_the_broker_refuses() -> None:
    broker = DrivenBroker(BrokerRules(waiting_max=5))
    broker.run(c.SetTenant("acme", TenantPolicy(waiting_max=3)))
    broker.submit(Spec("mail"), Spec("mail"))
    assert refusal(broker.run(c.SubmitTasks("acme", [Spec("mail")] * 2))) == Refusal.QUEUE_FULL
    (last,) = broker.submit(Spec("mail"))
    assert refusal(broker.run(c.SubmitTasks("acme", [Spec("mail")]))) == Refusal.QUEUE_FULL
    broker.submit(Spec("mail"), Spec("mail"), tenant="other")
    assert refusal(broker.run(c.SubmitTasks("other", [Spec("mail")]))) == Refusal.QUEUE_FULL
    broker.run(c.CancelTasks("acme", [last]))
    assert broker.submit(Spec("mail")) != [0]


def test_a_task_that_needs_code_that_is_not_there_is_refused() -> None:
    broker = DrivenBroker()
    assert refusal(broker.run(c.SubmitTasks("acme", [Spec("mail", code="pool")]))) == Refusal.UNKNOWN_CODE


def test_draining_holds_refuse_what_they_name_and_nothing_else() -> None:
    broker = DrivenBroker()
    broker.run(c.SetHold("acme", "mail", is_draining=True, is_paused=False))
    broker.run(c.SetHold("other", "", "k", is_draining=True, is_paused=False))
    assert refusal(broker.run(c.SubmitTasks("acme", [Spec("sms"), Spec("mail")]))) == Refusal.DRAINING
    assert refusal(broker.run(c.SubmitTasks("other", [Spec("sms", key="k")]))) == Refusal.DRAINING
    broker.submit(Spec("sms"))
    broker.submit(Spec("mail", key="l"), tenant="other")
    broker.run(c.ClearHold("acme", "mail"))
    broker.submit(Spec("mail"))


def test_a_delay_counts_from_logged_time_and_a_start_is_absolute() -> None:
    broker = DrivenBroker()
    ids = broker.submit(
        Spec("mail", delay_ms=100), Spec("mail", start_ms=START_MS + 200), Spec("mail", start_ms=START_MS - 5)
    )
    assert [broker.status(one) for one in ids] == [TaskStatus.DELAYED, TaskStatus.DELAYED, TaskStatus.WAITING]
    assert [broker.get(one).due_ms for one in ids] == [START_MS + 100, START_MS + 200, 0]
    broker.check()


def test_tasks_of_many_tenants_are_submitted_together() -> None:
    broker = DrivenBroker()
    (holder,) = broker.submit(Spec("mail", slot="s"))
    submits = [
        c.SubmitTasks("acme", [Spec("mail"), Spec("mail", slot="s"), Spec("mail", slot="t")]),
        c.SubmitTasks("other", [Spec("mail", slot="s"), Spec("mail")]),
    ]
    reply = broker.run(c.SubmitForTenants(submits))
    assert reply == TasksSubmitted(holder + 2, 4, [(1, holder)])  # Behind the record of the holder's slot.
    shown = [broker.get(holder + 2 + number) for number in range(4)]
    assert [(task.tenant, task.slot) for task in shown] == [("acme", ""), ("acme", "t"), ("other", "s"), ("other", "")]
    broker.check()


def test_all_tenants_tasks_are_refused_where_one_is() -> None:
    broker = DrivenBroker(BrokerRules(waiting_max=3))
    one, two = c.SubmitTasks("acme", [Spec("mail")] * 2), c.SubmitTasks("other", [Spec("mail")] * 2)
    assert refusal(broker.run(c.SubmitForTenants([one, two]))) == Refusal.QUEUE_FULL
    bad = c.SubmitTasks("other", [Spec("")])
    for submits in (
        [],
        [one, one],
        [one, bad],
        [one, c.SubmitTasks("b", [Spec("mail")], "key")],
        [c.SubmitTasks("", [])],
    ):
        assert refusal(broker.run(c.SubmitForTenants(submits))) == Refusal.INVALID
    large = [c.SubmitTasks(tenant, [Spec("mail", bytes(PAYLOAD_BYTES_MAX))] * 2) for tenant in ("a", "b")]
    assert refusal(DrivenBroker().run(c.SubmitForTenants(large))) == Refusal.TOO_LARGE
    many = [c.SubmitTasks(tenant, [Spec("mail")] * BATCH_TASKS_MAX) for tenant in ("a", "b")]
    assert refusal(DrivenBroker().run(c.SubmitForTenants(many))) == Refusal.INVALID
    assert not len(broker.machine.tasks)


def test_a_reply_for_many_tenants_names_a_part_of_the_taken_slots_and_counts_them_all() -> None:
    broker = DrivenBroker()
    broker.submit(Spec("mail", slot="s"))
    reply = broker.run(c.SubmitForTenants([c.SubmitTasks("acme", [Spec("mail", slot="s")] * 500)]))
    assert isinstance(reply, TasksSubmitted)
    assert (reply.first_task_id, reply.count, len(reply.refused)) == (0, 0, 200)
