"""A registry with everything around it in the test's hands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from broker.machine.commands import BrokerCommand, HeldRun
from broker.machine.outbox import OutboxItem, OutboxKind
from broker.machine.policies import WorkerOffer
from broker.machine.replies import BrokerReply, Done
from broker.machine.worker_messages import AssignedRun, WorkerHello, WorkerWelcome
from broker.server.worker_registry import WorkerRegistry

__all__ = ["Bench", "Link", "incarnation"]

Kind = TypeVar("Kind", bound=BrokerCommand)


def incarnation(number: int = 1) -> str:
    return f"{number:032x}"


class Link:
    """One stream; `told` is what went over it, in order."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.work = 0
        self.ended: tuple[str, str] | None = None
        self.is_replaced = False

    def welcome(self, welcome: WorkerWelcome) -> None:
        self.told.append(welcome)

    def assign(self, run: AssignedRun) -> None:
        self.told.append(run.assignment_id)

    def cancel(self, run: HeldRun) -> None:
        self.told.append(run)

    def acknowledge(self, assignment_ids: Sequence[int]) -> None:
        self.told += [("ack", one) for one in assignment_ids]

    def change_work(self, size: int) -> None:
        self.work += size
        assert self.work >= 0

    def pong(self, number: int) -> None:
        self.told.append(("pong", number))

    def end(self, *, leader: str = "", refused: str = "", is_replaced: bool = False) -> None:
        if self.ended is None:
            self.ended = (leader, refused)
            self.is_replaced = is_replaced

    @property
    def assigned(self) -> list[int]:
        return [one for one in self.told if isinstance(one, int)]


class Bench:
    """The log decides nothing by itself: `confirm` answers the oldest command."""

    def __init__(self, *, leads: bool = True, known: Sequence[tuple[str, str, bool]] = ()) -> None:
        self.now_s = 0.0
        self.revision = 0
        self.commands: list[BrokerCommand] = []
        self._waiting: list[Callable[[BrokerReply | None, int], None]] = []
        self.gone: set[int] = set()
        self.replaced: set[str] = set()
        self.registry = WorkerRegistry(
            self._submit, self._read, lambda: self.now_s, broker_id="a", lease_s=30.0, ping_s=10.0,
            was_replaced=lambda _worker_id, incarnation: incarnation in self.replaced,
        )  # fmt: skip
        if leads:
            self.registry.begin(known)

    def _submit(self, command: BrokerCommand, on_reply: Callable[[BrokerReply | None, int], None]) -> None:
        self.commands.append(command)
        self._waiting.append(on_reply)

    def _read(self, item: OutboxItem) -> AssignedRun | None:
        if item.assignment_id in self.gone:
            return None
        return AssignedRun(item.task_id, item.assignment_id, "t", "mail", b"", 1)

    def confirm(self, reply: BrokerReply | None = None) -> int:
        """Answer the oldest command; return the revision behind it."""
        self.revision += 1
        self._waiting.pop(0)(reply or Done(self.revision), self.revision)
        self.registry.validate()
        return self.revision

    def fail(self) -> None:
        """Say of the oldest command that nothing is known of it."""
        self._waiting.pop(0)(None, 0)
        self.registry.validate()

    def hello(self, worker_id: str = "w", number: int = 1, **fields: Any) -> Link:
        """Say hello over a new stream."""
        link = Link()
        self.registry.on_hello(link, WorkerHello(worker_id, incarnation(number), "host", WorkerOffer(8), **fields))
        self.registry.validate()
        return link

    def serve(self, worker_id: str = "w", number: int = 1) -> Link:
        """Take a worker in."""
        link = self.hello(worker_id, number)
        self.confirm()
        return link

    def assign(self, worker_id: str = "w", *, at: int | None = None) -> int:
        """Confirm an assignment; return its id."""
        self.revision += 1
        assignment_id = self.revision if at is None else at
        self.registry.deliver(
            [OutboxItem(assignment_id, OutboxKind.ASSIGN, worker_id, 1000 + assignment_id, assignment_id)]
        )
        self.registry.validate()
        return assignment_id

    def of_kind(self, kind: type[Kind]) -> list[Kind]:
        """Return the commands of one kind."""
        return [one for one in self.commands if isinstance(one, kind)]
