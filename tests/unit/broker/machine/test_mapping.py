"""A user's function that sets properties of tasks as they come in."""

from __future__ import annotations

import pytest

from broker.machine import commands as c
from broker.machine.mapping import Mapped
from broker.machine.replies import Refusal, Refused
from tests.unit.broker.machine.driven_broker import DrivenBroker

Spec = c.TaskSpec


def refusal(reply: object) -> str:
    assert isinstance(reply, Refused), reply
    assert reply.reason
    return reply.refusal


def test_what_the_mapper_says_is_logged_and_it_is_not_asked_again() -> None:
    asked: list[str] = []

    def mapper(tenant: str, task_type: str, spec: c.TaskSpec) -> Mapped | None:
        asked.append(f"{tenant}/{task_type}")
        return Mapped(group=4, resources={"db": 1}) if spec.payload else None

    broker = DrivenBroker(mapper=mapper)
    mapped, plain = broker.submit(Spec("mail", b"x", priority=3), Spec("mail", group=2))
    assert asked == ["acme/mail", "acme/mail"]
    assert (broker.get(mapped).group, broker.get(mapped).priority, broker.get(mapped).resources) == (4, 3, {"db": 1})
    assert broker.get(plain).group == 2
    broker.check()
    assert len(asked) == 2


@pytest.mark.parametrize(
    "result",
    [
        ValueError("no"), SystemExit(3), RecursionError("deep"), "text", 7, Mapped(group=0), Mapped(priority=2**40),
        Mapped(resources={"a": -1}),
    ],
)  # fmt: skip
def test_a_mapper_that_fails_refuses_the_command_and_nothing_else(result: object) -> None:
    def mapper(tenant: str, task_type: str, spec: c.TaskSpec) -> Mapped | None:  # noqa: ARG001
        if isinstance(result, BaseException):
            raise result
        return result if spec.payload else None  # type: ignore[return-value]

    broker = DrivenBroker(mapper=mapper)
    assert refusal(broker.run(c.SubmitTasks("acme", [Spec("mail", b"x")]))) == Refusal.INVALID
    if not isinstance(result, BaseException):
        broker.submit(Spec("mail"))
