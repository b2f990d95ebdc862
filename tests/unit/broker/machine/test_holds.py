"""Who set a hold, and who may end it."""

from __future__ import annotations

import pytest

from broker.machine import commands as c
from broker.machine import queries as q
from broker.machine.commands import TaskSpec as Spec
from broker.machine.holds import OPERATOR, Author, AuthorRole, author_of, signed
from broker.machine.replies import Done, Refusal, Refused
from broker.machine.tables import RecordType
from tests.unit.broker.machine.driven_broker import START_MS, DrivenBroker

_ACME = Author(AuthorRole.TENANT, "ci of acme")
_OPS = Author(AuthorRole.OPERATOR, "ops")


@pytest.fixture
def broker() -> DrivenBroker:
    return DrivenBroker()


def refusal(reply: object) -> str:
    assert isinstance(reply, Refused), reply
    return reply.refusal


def test_a_tenant_neither_ends_nor_replaces_what_an_operator_has_set(broker: DrivenBroker) -> None:
    broker.run(c.SetHold("acme", "", is_draining=True, by=_OPS, reason="banned"))
    for attempt in (
        c.ClearHold("acme", "", by=_ACME),
        c.SetHold("acme", "", is_paused=True, by=_ACME),
        c.SetHold("acme", "", until_ms=START_MS + 1, by=_ACME),
    ):
        assert refusal(broker.run(attempt)) == Refusal.NOT_ALLOWED
    (shown,) = broker.ask(q.ListLimits("acme")).holds
    assert (shown.is_draining, shown.reason, shown.by_role, shown.by_name) == (True, "banned", "operator", "ops")
    assert refusal(broker.run(c.SubmitTasks("acme", [Spec("mail")]))) == Refusal.DRAINING
    assert isinstance(broker.run(c.ClearHold("acme", "", by=Author(AuthorRole.OPERATOR, "other"))), Done)
    broker.check()


def test_a_tenant_ends_its_own_hold_until_an_operator_takes_it_over(broker: DrivenBroker) -> None:
    broker.run(c.SetHold("acme", "mail", by=_ACME))
    assert isinstance(broker.run(c.ClearHold("acme", "mail", by=Author(AuthorRole.TENANT, "other token"))), Done)
    broker.run(c.SetHold("acme", "mail", by=_ACME, reason="mine"))
    broker.run(c.SetHold("acme", "mail", by=_OPS, reason="ours"))
    assert refusal(broker.run(c.ClearHold("acme", "mail", by=_ACME))) == Refusal.NOT_ALLOWED
    broker.check()


def test_a_hold_of_an_older_log_is_the_operators(broker: DrivenBroker) -> None:
    broker.log_record(RecordType.HOLD_SET, ("acme", "", "", True, False, 0, "busy"))
    assert refusal(broker.run(c.ClearHold("acme", "", by=_ACME))) == Refusal.NOT_ALLOWED
    (shown,) = broker.ask(q.ListLimits("acme")).holds
    assert (shown.reason, shown.by_role) == ("busy", "operator")
    broker.check()


def test_nobody_pretends_by_the_words_of_a_reason() -> None:
    for author in (OPERATOR, _OPS, _ACME, Author("tenant", "x'] [by operator 'ops")):
        for reason in ("", "busy", "a [by operator 'ops']", "[by operator]", "two\nlines", "[by tenant 'x'] "):
            told, found = author_of(signed(reason, author))
            assert (told, found.role) == (reason, author.role)
    assert author_of(signed("x", Author("emperor", "nero")))[1].role == AuthorRole.TENANT


def test_one_tenant_does_not_fill_the_holds(broker: DrivenBroker) -> None:
    for number in range(1_000):
        broker.run(c.SetHold("acme", "", f"k{number}", by=_ACME))
    assert refusal(broker.run(c.SetHold("acme", "", "one more", by=_ACME))) == Refusal.QUEUE_FULL
    assert isinstance(broker.run(c.SetHold("acme", "", "k1", by=_ACME)), Done)
    assert isinstance(broker.run(c.SetHold("acme", "", "one more", by=_OPS)), Done)
    assert isinstance(broker.run(c.SetHold("bolt", "", "k", by=Author("tenant", "bolt"))), Done)
    broker.check()
