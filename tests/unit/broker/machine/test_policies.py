"""What a worker can run."""

from __future__ import annotations

import pytest

from broker.machine.policies import WorkerOffer


@pytest.mark.parametrize(
    ("offer", "mail", "sms"),
    [
        (WorkerOffer(5), 5, 5),
        (WorkerOffer(5, {"mail": 2}), 2, 0),
        (WorkerOffer(5, {"mail": 9}, 1), 5, 1),
        (WorkerOffer(5, {}, 3), 3, 3),
        (WorkerOffer(5, {"mail": 0}, 9), 0, 5),
    ],
)
def test_threads_are_counted_by_type(offer: WorkerOffer, mail: int, sms: int) -> None:
    assert (offer.threads_for("mail"), offer.threads_for("sms")) == (mail, sms)


def test_groups_rank_in_their_order_and_any_where_it_stands() -> None:
    offer = WorkerOffer(1, groups=(3, 0, 2), excluded_groups=(7,))
    assert [offer.rank_of(group) for group in (3, 2, 5, 7)] == [0, 2, 1, None]
    assert WorkerOffer(1, groups=(1,)).rank_of(2) is None
