"""The registry: who is served, what is handed over, when, and who is gone."""

from __future__ import annotations

from broker.machine.commands import (
    EndedRun,
    HeldRun,
    ProgressOf,
    ReportRuns,
    WorkerAppeared,
    WorkerChanged,
    WorkerLost,
)
from broker.machine.outbox import OutboxItem, OutboxKind
from broker.machine.policies import WorkerOffer
from broker.machine.replies import Refused
from broker.machine.statuses import TaskStatus
from broker.machine.worker_messages import FromWorker, WorkerHello, WorkerWelcome
from tests.unit.broker.server.registry_bench import Bench, Link, incarnation


def ended(assignment_id: int, result: bytes = b"") -> EndedRun:
    return EndedRun(1000 + assignment_id, assignment_id, int(TaskStatus.FINISHED), result=result)


def test_nothing_is_said_to_a_worker_before_the_log_knows_it() -> None:
    bench = Bench()
    link = bench.hello()
    assert link.told == []
    bench.confirm()
    assert link.told == [WorkerWelcome(10_000, 30_000, "a")]


def test_an_assignment_that_was_confirmed_before_the_worker_appeared_is_not_handed_over() -> None:
    bench = Bench()
    link = bench.hello()
    bench.assign()
    appeared = bench.confirm()
    assert link.assigned == []
    assert bench.assign() == appeared + 1
    assert link.assigned == [appeared + 1]


def test_an_assignment_of_the_entry_in_which_the_worker_appeared_follows_the_welcome() -> None:
    bench = Bench()
    link = bench.hello()
    later = bench.assign(at=5)
    bench.confirm()
    assert link.told == [WorkerWelcome(10_000, 30_000, "a"), later]


def test_a_cancel_that_was_asked_while_the_worker_was_away_follows_the_welcome() -> None:
    bench = Bench()
    link = bench.hello(held=[HeldRun(7, 3)])
    bench.registry.deliver([OutboxItem(1, OutboxKind.CANCEL, "w", 7, 3)])
    bench.confirm()
    assert link.told[1:] == [HeldRun(7, 3)]


def test_an_assignment_that_is_over_when_it_would_leave_is_not_handed_over() -> None:
    bench = Bench()
    link = bench.serve()
    bench.gone.add(2)
    bench.assign()
    assert link.assigned == []


def test_what_is_assigned_to_a_worker_without_a_stream_is_counted() -> None:
    bench = Bench()
    link = bench.serve()
    bench.registry.on_closed(link)
    bench.assign()
    assert bench.registry.undelivered == 1
    assert link.assigned == []


def test_what_a_worker_says_in_one_turn_is_one_command() -> None:
    bench = Bench()
    link = bench.serve()
    bench.registry.on_said(link, FromWorker(ended=[ended(1)], progress=[ProgressOf(9, 2, 0.1)]))
    bench.registry.on_said(link, FromWorker(ended=[ended(3)], progress=[ProgressOf(9, 2, 0.2)]))
    assert bench.of_kind(ReportRuns) == []
    bench.registry.flush()
    assert bench.of_kind(ReportRuns) == [ReportRuns("w", incarnation(), [ended(1), ended(3)], [ProgressOf(9, 2, 0.2)])]
    bench.registry.flush()
    assert len(bench.of_kind(ReportRuns)) == 1


def test_ends_are_acknowledged_when_they_are_confirmed() -> None:
    bench = Bench()
    link = bench.serve()
    bench.registry.on_said(link, FromWorker(ended=[ended(1)]))
    bench.registry.flush()
    assert link.told[1:] == []
    assert link.work > 0
    bench.confirm()
    assert link.told[1:] == [("ack", 1)]
    assert link.work == 0


def test_ends_of_which_nothing_is_known_are_not_acknowledged() -> None:
    bench = Bench()
    link = bench.serve()
    bench.registry.on_said(link, FromWorker(ended=[ended(1)]))
    bench.registry.flush()
    bench.fail()
    assert link.told[1:] == []


def test_large_results_are_reported_in_commands_that_fit_an_entry() -> None:
    bench = Bench()
    link = bench.serve()
    bench.registry.on_said(link, FromWorker(ended=[ended(one, bytes(700_000)) for one in range(1, 5)]))
    bench.registry.flush()
    assert [[one.assignment_id for one in report.ended] for report in bench.of_kind(ReportRuns)] == [[1], [2], [3], [4]]
    for _ in range(4):
        bench.confirm()
    assert link.told[1:] == [("ack", 1), ("ack", 2), ("ack", 3), ("ack", 4)]
    assert link.work == 0


def test_ends_too_large_for_the_hello_s_command_follow_it_and_are_held_until_then() -> None:
    bench = Bench()
    bench.hello(ended=[ended(one, bytes(700_000)) for one in range(1, 4)])
    (appeared,) = bench.of_kind(WorkerAppeared)
    assert [one.assignment_id for one in appeared.ended] == [1]
    assert [one.assignment_id for one in appeared.held] == [2, 3]
    assert [one.ended[0].assignment_id for one in bench.of_kind(ReportRuns)] == [2, 3]


def test_ends_told_with_the_hello_are_acknowledged_with_the_welcome() -> None:
    bench = Bench()
    link = bench.hello(ended=[ended(4)])
    bench.confirm()
    assert link.told[1:] == [("ack", 4)]


def test_another_process_of_the_same_name_takes_the_place_of_the_former() -> None:
    bench = Bench()
    first = bench.serve(number=1)
    second = bench.serve(number=2)
    assert first.ended is not None
    assert "another process works as 'w'" in first.ended[1]
    assert first.is_replaced
    bench.registry.on_closed(first)
    assert bench.of_kind(WorkerLost) == []
    bench.assign()
    assert (first.assigned, len(second.assigned)) == ([], 1)


def test_a_new_stream_of_the_same_process_ends_the_old_one_without_a_word() -> None:
    bench = Bench()
    first = bench.serve()
    bench.registry.on_said(first, FromWorker(ended=[ended(1)]))
    bench.hello()
    assert first.ended == ("", "")
    kinds = [type(one) for one in bench.commands]
    assert kinds == [WorkerAppeared, ReportRuns, WorkerAppeared]
    bench.registry.on_said(first, FromWorker(ended=[ended(2)]))
    bench.registry.flush()
    assert len(bench.commands) == 3


def test_a_worker_whose_appearance_is_refused_is_told_why() -> None:
    bench = Bench()
    link = bench.hello()
    bench.confirm(Refused("stale-worker", "give each its own id"))
    assert link.ended == ("", "give each its own id")
    assert not link.is_replaced
    bench.assign()
    assert link.told == []


def test_a_worker_whose_refusal_by_the_log_means_that_it_was_replaced_is_told_so_by_a_field() -> None:
    """In its own words, which no worker has to know."""
    bench = Bench()
    link = bench.hello()
    bench.replaced.add(incarnation())
    bench.confirm(Refused("stale-worker", "two processes take turns"))
    assert link.ended == ("", "two processes take turns")
    assert link.is_replaced

    bench = Bench()
    link = bench.hello()
    bench.replaced.add(incarnation())
    bench.confirm(Refused("conflict", "too new"))
    assert not link.is_replaced, "it was refused for something else"


def test_a_hello_of_a_process_that_was_replaced_is_refused_at_once() -> None:
    bench = Bench()
    bench.replaced.add(incarnation())
    link = bench.hello()
    assert link.ended is not None
    assert link.is_replaced
    assert bench.commands == []


def test_a_worker_whose_stream_is_down_keeps_its_runs_until_its_lease_is_over() -> None:
    bench = Bench()
    link = bench.serve()
    bench.registry.on_closed(link)
    assert bench.of_kind(WorkerLost) == [WorkerLost("w", incarnation())]
    bench.now_s = 29.9
    bench.registry.tick()
    assert len(bench.of_kind(WorkerLost)) == 1
    bench.now_s = 30.0
    bench.registry.tick()
    assert bench.of_kind(WorkerLost)[1] == WorkerLost("w", incarnation(), is_dead=True)
    bench.registry.validate()


def test_a_worker_that_comes_back_in_time_stays_alive() -> None:
    bench = Bench()
    bench.registry.on_closed(bench.serve())
    bench.now_s = 20.0
    bench.hello()
    bench.now_s = 100.0
    bench.registry.tick()
    assert not any(one.is_dead for one in bench.of_kind(WorkerLost))


def test_a_worker_that_said_that_it_leaves_is_dead_at_once() -> None:
    bench = Bench()
    link = bench.serve()
    bench.registry.on_said(link, FromWorker(ended=[ended(1)], is_leaving=True))
    bench.registry.on_closed(link)
    assert [type(one) for one in bench.commands] == [WorkerAppeared, ReportRuns, WorkerLost]
    assert bench.of_kind(WorkerLost) == [WorkerLost("w", incarnation(), is_dead=True)]
    bench.registry.validate()


def test_a_new_leader_gives_every_worker_its_whole_lease_and_assigns_to_none_that_has_not_come() -> None:
    bench = Bench(known=[("v", incarnation(1), False), ("w", incarnation(2), True)])
    assert bench.of_kind(WorkerLost) == [WorkerLost("w", incarnation(2))]
    bench.now_s = 29.0
    link = bench.hello("w", 2)
    bench.now_s = 30.0
    bench.registry.tick()
    assert bench.of_kind(WorkerLost)[1:] == [WorkerLost("v", incarnation(1), is_dead=True)]
    assert link.ended is None


def test_a_death_that_could_not_be_logged_is_tried_again() -> None:
    bench = Bench(known=[("v", incarnation(1), False)])
    bench.now_s = 30.0
    bench.registry.tick()
    bench.fail()
    bench.now_s = 60.0
    bench.registry.tick()
    assert len(bench.of_kind(WorkerLost)) == 2


def test_who_leads_no_more_names_who_does_and_reports_nothing() -> None:
    bench = Bench()
    link = bench.serve()
    bench.registry.on_said(link, FromWorker(ended=[ended(1)]))
    bench.registry.suspend()
    bench.registry.cease("b:1")
    bench.registry.flush()
    assert link.ended == ("b:1", "")
    bench.registry.on_closed(link)
    assert bench.of_kind(ReportRuns) + bench.of_kind(WorkerLost) == []


def test_an_answer_that_comes_after_a_new_beginning_changes_nothing() -> None:
    bench = Bench()
    link = bench.hello()
    bench.registry.cease("")
    bench.registry.begin([])
    bench.confirm()
    assert link.told == []


def test_a_changed_offer_goes_behind_what_was_said_before_it() -> None:
    bench = Bench()
    link = bench.serve()
    bench.registry.on_said(link, FromWorker(ended=[ended(1)]))
    bench.registry.on_said(link, FromWorker(offer=WorkerOffer(2), is_draining=True))
    assert [type(one) for one in bench.commands[1:]] == [ReportRuns, WorkerChanged]
    assert bench.of_kind(WorkerChanged) == [WorkerChanged("w", incarnation(), WorkerOffer(2), True)]


def test_a_ping_is_answered_at_once() -> None:
    bench = Bench()
    link = bench.serve()
    bench.registry.on_said(link, FromWorker(ping=7))
    assert link.told[1:] == [("pong", 7)]


def test_whose_tasks_a_worker_may_run_is_said_by_its_credential_not_by_itself() -> None:
    bench = Bench()
    for tenants in (("acme",), None):
        lying = WorkerHello("w", incarnation(1), "host", WorkerOffer(8, tenants=("everybody",)))
        link = Link()
        bench.registry.on_hello(link, lying, tenants)
        bench.confirm()
        bench.registry.on_said(link, FromWorker(offer=WorkerOffer(9, tenants=("everybody",))))
        bench.confirm()
        appeared, changed = bench.commands[-2:]
        assert isinstance(appeared, WorkerAppeared)
        assert isinstance(changed, WorkerChanged)
        assert appeared.offer == WorkerOffer(8, tenants=tenants)
        assert changed.offer == WorkerOffer(9, tenants=tenants)
