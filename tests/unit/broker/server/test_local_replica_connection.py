"""The commands of a broker to its replica: batches, refusals, and what the log says after a failover."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
import pytest_asyncio

from broker.server.local_replica_connection import LocalReplicaConnection
from rsm_spark.core.commands import Answer, AnswerStatus, Command, OpenSession, Request
from rsm_spark.errors import InvalidCommandError, NoLeaderError, NotLeaderError, OutcomeUnknownError
from rsm_spark.runtime.command_outcomes import CommandOutcomes
from rsm_spark.runtime.replica import Replica
from rsm_spark.runtime.status import ReplicaRole

pytestmark = pytest.mark.asyncio


class ReplicaDouble:
    """Answers when it is told to; `log` is what was confirmed."""

    def __init__(self) -> None:
        self.role = ReplicaRole.LEADER
        self.leader_epoch = 1
        self.leader_address: str | None = "here:1"
        self.submissions: list[tuple[Sequence[Request], asyncio.Future[Sequence[Answer]]]] = []
        self.log: dict[int, bytes] = {}
        self._context = None
        self._role: list[Callable[[ReplicaRole], None]] = []
        self._applied: list[Callable[[int], None]] = []

    def on_role(self, listener: Callable[[ReplicaRole], None]) -> None:
        self._role.append(listener)

    def on_applied(self, listener: Callable[[int], None]) -> None:
        self._applied.append(listener)

    def submit(self, requests: Sequence[Request]) -> asyncio.Future[Sequence[Answer]]:
        future: asyncio.Future[Sequence[Answer]] = asyncio.get_running_loop().create_future()
        if self.role is not ReplicaRole.LEADER:
            future.set_result([Answer(AnswerStatus.NOT_LEADER, 0, b"")] * len(requests))
        elif isinstance(requests[0], OpenSession):
            future.set_result([Answer(AnswerStatus.OK, 1, b"")])
        else:
            self.submissions.append((requests, future))
        return future

    def answer(self, status: AnswerStatus = AnswerStatus.OK) -> None:
        """Answer all that waits."""
        submissions, self.submissions = self.submissions, []
        for requests, future in submissions:
            answers = []
            for request in requests:
                assert isinstance(request, Command)
                if status is AnswerStatus.OK:
                    self.log.setdefault(request.sequence, b"reply to " + request.payload)
                answers.append(Answer(status, 7, self.log.get(request.sequence, b"")))
            future.set_result(answers)

    def become(self, role: ReplicaRole, epoch: int) -> None:
        self.role, self.leader_epoch = role, epoch
        for listener in self._role:
            listener(role)

    def apply(self) -> None:
        for listener in self._applied:
            listener(9)


class FatesDouble:
    def __init__(self, replica: ReplicaDouble) -> None:
        self.replica = replica
        self.known_above = 0

    def are_known(self, leader_epoch: int) -> bool:
        return self.known_above > leader_epoch

    def of_command(self, command: Command) -> Answer:
        reply = self.replica.log.get(command.sequence)
        return Answer(AnswerStatus.NOT_LEADER, 9, b"") if reply is None else Answer(AnswerStatus.OK, 9, reply)


class Bench:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.replica = ReplicaDouble()
        self.fates = FatesDouble(self.replica)
        monkeypatch.setattr(CommandOutcomes, "of", lambda _replica: self.fates)
        self.session = LocalReplicaConnection(cast("Replica", cast("Any", self.replica)))

    def execute(self, payload: bytes, timeout_s: float = 20.0) -> asyncio.Task[bytes]:
        return asyncio.create_task(self.session.execute(payload, timeout_s))

    async def reach(self, count: int = 1) -> None:
        """Wait until so many submissions have reached the replica."""
        async with asyncio.timeout(60):
            while len(self.replica.submissions) < count:
                await asyncio.sleep(0)


@pytest_asyncio.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


async def _open(bench: Bench) -> None:
    first = bench.execute(b"first")
    await bench.reach()
    bench.replica.answer()
    assert await first == b"reply to first"


async def test_commands_of_one_turn_are_one_submission_in_order(bench: Bench) -> None:
    await _open(bench)
    calls = [bench.execute(b"%d" % number) for number in range(100)]
    await bench.reach()
    (requests, _future) = bench.replica.submissions[0]
    assert [cast("Command", one).payload for one in requests] == [b"%d" % number for number in range(100)]
    assert [cast("Command", one).sequence for one in requests] == list(range(2, 102))
    bench.replica.answer()
    assert await asyncio.gather(*calls) == [b"reply to %d" % number for number in range(100)]
    bench.session.close()


async def test_a_command_does_not_wait_for_the_one_before_it(bench: Bench) -> None:
    await _open(bench)
    calls = [bench.execute(b"a")]
    await bench.reach(1)
    calls.append(bench.execute(b"b"))
    await bench.reach(2)
    bench.replica.answer()
    assert await asyncio.gather(*calls) == [b"reply to a", b"reply to b"]
    bench.session.close()


async def test_who_does_not_lead_says_so_at_once_and_names_who_does(bench: Bench) -> None:
    bench.replica.role, bench.replica.leader_address = ReplicaRole.FOLLOWER, "there:1"
    with pytest.raises(NotLeaderError) as refused:
        await bench.session.execute(b"x", 10)
    assert refused.value.leader == "there:1"
    bench.session.close()


async def test_a_command_that_was_never_decided_is_certainly_not_applied(bench: Bench) -> None:
    await _open(bench)
    call = bench.execute(b"x")
    await bench.reach()
    bench.replica.answer(AnswerStatus.NOT_LEADER)
    with pytest.raises(NotLeaderError):
        await call
    bench.session.close()


async def test_a_command_that_the_log_has_is_answered_after_its_leader_was_deposed(bench: Bench) -> None:
    await _open(bench)
    call = bench.execute(b"x")
    await bench.reach()
    bench.replica.answer(AnswerStatus.OUTCOME_UNKNOWN)
    bench.replica.become(ReplicaRole.FOLLOWER, 1)
    bench.replica.apply()
    await asyncio.sleep(0)
    assert not call.done()
    bench.replica.log[2] = b"it was confirmed"
    bench.fates.known_above = 2
    bench.replica.apply()
    assert await call == b"it was confirmed"
    bench.session.close()


async def test_a_command_that_the_log_does_not_have_was_never_applied(bench: Bench) -> None:
    await _open(bench)
    call = bench.execute(b"x")
    await bench.reach()
    bench.replica.answer(AnswerStatus.OUTCOME_UNKNOWN)
    bench.replica.become(ReplicaRole.FOLLOWER, 1)
    await asyncio.sleep(0)
    bench.fates.known_above = 2
    bench.replica.apply()
    with pytest.raises(NotLeaderError):
        await call
    bench.session.close()


async def test_a_command_is_asked_again_with_its_number_when_the_replica_leads_again(bench: Bench) -> None:
    await _open(bench)
    call = bench.execute(b"x")
    await bench.reach()
    bench.replica.answer(AnswerStatus.OUTCOME_UNKNOWN)
    bench.replica.become(ReplicaRole.FOLLOWER, 1)
    await asyncio.sleep(0)
    bench.replica.become(ReplicaRole.LEADER, 3)
    await bench.reach()
    assert [cast("Command", one).sequence for one in bench.replica.submissions[0][0]] == [2]
    bench.replica.answer()
    assert await call == b"reply to x"
    bench.session.close()


async def test_a_command_of_which_nothing_is_ever_heard_is_of_unknown_outcome(bench: Bench) -> None:
    await _open(bench)
    call = bench.execute(b"x", timeout_s=0.1)
    await bench.reach()
    with pytest.raises(OutcomeUnknownError):
        await call
    bench.session.close()


async def test_a_session_that_expired_is_replaced_and_its_commands_go_on(bench: Bench) -> None:
    await _open(bench)
    call = bench.execute(b"x")
    await bench.reach()
    former = cast("Command", bench.replica.submissions[0][0][0]).session
    bench.replica.log.clear()
    bench.replica.answer(AnswerStatus.SESSION_EXPIRED)
    await bench.reach()
    again = cast("Command", bench.replica.submissions[0][0][0])
    assert (again.sequence, again.session != former) == (1, True)
    bench.replica.answer()
    assert await call == b"reply to x"
    bench.session.close()


async def test_a_command_that_was_not_taken_for_a_full_queue_is_sent_again(bench: Bench) -> None:
    await _open(bench)
    call = bench.execute(b"x")
    await bench.reach()
    bench.replica.answer(AnswerStatus.OVERLOADED)
    await bench.reach()
    bench.replica.answer()
    assert await call == b"reply to x"
    bench.session.close()


async def test_a_command_too_large_for_an_entry_is_refused(bench: Bench) -> None:
    await _open(bench)
    call = bench.execute(b"x")
    await bench.reach()
    bench.replica.answer(AnswerStatus.TOO_LARGE)
    with pytest.raises(InvalidCommandError):
        await call
    bench.session.close()


async def test_what_waits_when_it_closes_is_given_up(bench: Bench) -> None:
    await _open(bench)
    call = bench.execute(b"x")
    await bench.reach()
    bench.session.close()
    with pytest.raises((OutcomeUnknownError, NoLeaderError)):
        await call
    with pytest.raises(NotLeaderError):
        await bench.session.execute(b"y", 1)
