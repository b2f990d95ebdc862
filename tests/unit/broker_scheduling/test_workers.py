"""Workers: which classes find a seat on them, and when there is room."""

from __future__ import annotations

import pytest

from broker.core.policies import WorkerOffer
from broker.core.scheduling.accounts import Arena
from broker.core.scheduling.classes import TaskClass, TaskType
from broker.core.scheduling.workers import Profile, Seat, Worker


def task_class(group: int = 1, kind: str = "mail", **resources: int) -> TaskClass:
    return TaskClass(group, TaskType(kind), tuple(sorted(resources.items())), Arena())


@pytest.mark.parametrize(
    ("offer", "seat"),
    [
        (WorkerOffer(threads_max=8), Seat(0, 8, (), 0)),
        (WorkerOffer(threads_max=8, threads_by_type={"mail": 3}), Seat(0, 3, (), 0)),
        (WorkerOffer(threads_max=8, threads_by_type={"video": 3}), None),
        (WorkerOffer(threads_max=8, any_type_threads=2), Seat(0, 2, (), 0)),
        (WorkerOffer(threads_max=8, groups=(5, 1, 0)), Seat(1, 8, (), 0)),
        (WorkerOffer(threads_max=8, groups=(5, 0)), Seat(1, 8, (), 0)),
        (WorkerOffer(threads_max=8, groups=(5, 0), excluded_groups=(1,)), None),
        (WorkerOffer(threads_max=0), None),
        (WorkerOffer(threads_max=8, resources={"gpu": 2, "x": 0}), Seat(0, 8, (("gpu", 1, 2),), 0)),
        (WorkerOffer(threads_max=8, resources={"gpu": 0}), None),
        (WorkerOffer(threads_max=8, tenant_share_percent=30), Seat(0, 8, (), 2)),
        (WorkerOffer(threads_max=8, tenant_share_percent=1), Seat(0, 8, (), 1)),
    ],
)
def test_a_seat_is_what_an_offer_says_of_a_class(offer, seat):
    assert Profile(offer).seat(task_class(gpu=1)) == seat


def test_a_worker_counts_what_runs_on_it():
    worker = Worker("w", 1)
    worker.profile = Profile(WorkerOffer(threads_max=4, threads_by_type={"mail": 2}, resources={"gpu": 3}))
    kind = task_class(gpu=2)
    seat = worker.seat(kind)
    assert seat is not None
    assert worker.has_room(seat, "mail")
    worker.start("a", kind, 2)
    assert (worker.load, worker.last_use, worker.by_type, worker.amounts) == (0.25, 2, {"mail": 1}, {"gpu": 2})
    assert not worker.has_room(seat, "mail")
    worker.end("a", kind)
    assert (worker.load, worker.by_type, worker.amounts) == (0.0, {}, {})


def test_a_tenant_has_its_share_of_a_type_and_others_theirs():
    worker = Worker("w", 1)
    worker.profile = Profile(WorkerOffer(threads_max=4, tenant_share_percent=25))
    worker.by_tenant = {}
    kind = task_class()
    seat = worker.seat(kind)
    assert seat is not None
    worker.start("a", kind, 2)
    assert not worker.has_share(seat, "a", "mail")
    assert worker.has_share(seat, "b", "mail")
    worker.end("a", kind)
    assert worker.has_share(seat, "a", "mail")


def test_a_worker_without_an_offer_has_neither_seats_nor_room():
    worker = Worker("w", 1)
    assert worker.seat(task_class()) is None
    assert not worker.has_room(Seat(0, 4, (), 0), "mail")
    assert worker.load == 1.0
