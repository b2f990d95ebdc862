from __future__ import annotations

from broker.worker.core.route import BrokerRoute


def test_given_brokers_are_tried_in_turn_with_growing_pauses() -> None:
    route = BrokerRoute(["a:1", "b:1"], pause_ms_max=1_000)
    tried, pauses = [], []
    for _ in range(12):
        address, pause_ms = route.next(None, 0.999999)
        tried.append(address)
        pauses.append(pause_ms)
        route.failed()
    assert tried[:4] == ["a:1", "b:1", "a:1", "b:1"]
    assert pauses[0] == 0
    assert pauses == sorted(pauses)
    assert pauses[-1] == 999


def test_pauses_are_spread_by_chance() -> None:
    route = BrokerRoute(["a:1"])
    for _ in range(20):
        route.failed()
    low, high = route.next(None, 0.0)[1], route.next(None, 0.99)[1]
    assert low < high / 1.5


def test_a_leader_that_was_named_is_tried_at_once_but_not_in_a_circle() -> None:
    route = BrokerRoute(["a:1"])
    assert route.next(None, 0.0) == ("a:1", 0)
    for _ in range(3):
        route.hint("b:1")
        route.failed()
        assert route.next(None, 0.0) == ("b:1", 0)
    route.hint("b:1")
    address, pause_ms = route.next(None, 0.5)
    assert address == "a:1"
    assert pause_ms > 0


def test_who_served_last_is_tried_first_again() -> None:
    route = BrokerRoute(["a:1", "b:1"])
    route.next(None, 0.0)
    route.next(None, 0.0)
    route.served("b:1")
    assert route.next(None, 0.0) == ("b:1", 0)


def test_the_leader_of_the_metadata_store_goes_before_all_and_the_last_one_stands_in_for_it() -> None:
    route = BrokerRoute([])
    assert route.next(None, 0.0) == (None, 0)
    assert route.next("c:1", 0.0) == ("c:1", 0)
    route.served("c:1")
    assert route.next(None, 0.0) == ("c:1", 0)
