"""What an application may do with Apache BookKeeper's client, done on bookies of either kind."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.compat.bookies import Bookies, Kind
from tests.compat.java_client import JavaClient, JavaError

pytestmark = pytest.mark.compat

_MIXES: dict[str, tuple[Kind, ...]] = {"ours": ("ours", "ours", "ours"), "mixed": ("java", "ours", "ours")}
_LONG_ID = (1 << 40) + 7


@pytest.fixture(scope="module", params=list(_MIXES))
def bookies(request: pytest.FixtureRequest, java_bookkeeper: Callable[..., Bookies]) -> Bookies:
    return java_bookkeeper(*_MIXES[request.param])


class _Java:
    """The driver with the cluster's address filled in."""

    def __init__(self, client: JavaClient, bookies: Bookies, *, v2: bool = False) -> None:
        self.client = client
        self.common = {"uri": bookies.uri, "v2": v2}

    def __call__(self, command: str, **options: object) -> dict[str, object]:
        return self.client.call(command, **self.common, **options)


@pytest.fixture
def java(java_client: JavaClient, bookies: Bookies) -> _Java:
    return _Java(java_client, bookies)


def test_entries_of_explicit_ids_are_confirmed_once_those_before_them_are(java: _Java) -> None:
    ledger = java("create", adv=True)["ledger"]
    ids = list(range(200))
    random.Random(1).shuffle(ids)
    answer = java("append_at", ledger=ledger, entries=ids)
    assert (answer["lac"], answer["failed"]) == (199, None)
    java("close", ledger=ledger)
    seen = java("read", ledger=ledger)
    assert (seen["count"], seen["bad"], seen["length"]) == (200, 0, 20_000)


@pytest.mark.parametrize("ledger_id", [1 << 31, _LONG_ID, (1 << 63) - 1])
def test_a_ledger_of_a_64_bit_id_lives_like_any_other(java: _Java, ledger_id: int) -> None:
    assert java("create", adv=True, new_ledger=ledger_id)["ledger"] == ledger_id
    assert java("append_at", ledger=ledger_id, entries=list(range(50)))["lac"] == 49
    assert java("recover", ledger=ledger_id)["lac"] == 49
    seen = java("read", ledger=ledger_id)
    assert (seen["count"], seen["bad"], seen["closed"]) == (50, 0, True)
    assert ledger_id in java("list")["ledgers"]  # type: ignore[operator]
    with pytest.raises(JavaError, match="LedgerExist"):
        java("create", adv=True, new_ledger=ledger_id)
    java("delete", ledger=ledger_id)
    assert ledger_id not in java("list")["ledgers"]  # type: ignore[operator]


def test_a_deferred_sync_is_confirmed_by_force(java: _Java) -> None:
    ledger = java("create", deferred_sync=True)["ledger"]
    assert java("append", ledger=ledger, n=50)["lac"] == -1
    assert java("force", ledger=ledger)["lac"] == 49
    java("close", ledger=ledger)
    seen = java("read", ledger=ledger)
    assert (seen["count"], seen["bad"]) == (50, 0)


def test_an_explicit_lac_at_an_interval_shows_the_last_entry_of_an_idle_writer(java: _Java) -> None:
    java.common["explicit_lac_ms"] = 50
    ledger = java("create")["ledger"]
    java("append", ledger=ledger, n=10)
    answer = java("lac", ledger=ledger)
    while answer["explicit_lac"] != 9:
        answer = java("lac", ledger=ledger)
    assert (answer["read_lac"], answer["try_read_lac"]) == (9, 9)


def test_custom_metadata_and_the_ensemble_are_what_was_asked_for(java: _Java, bookies: Bookies) -> None:
    ledger = java("create", custom={"owner": "Ä"}, ensemble=3, write_quorum=2, ack_quorum=2)["ledger"]
    metadata = java("metadata", ledger=ledger)
    assert metadata["custom"] == {"owner": "Ä"}
    assert (metadata["ensemble"], metadata["write_quorum"], metadata["ack_quorum"]) == (3, 2, 2)
    assert sorted(metadata["ensembles"]["0"]) == sorted(bookies.ids)  # type: ignore[index]


def test_every_bookie_tells_which_entries_it_has_and_how_much_room(java: _Java, bookies: Bookies) -> None:
    ledger = java("create", ensemble=3, write_quorum=3, ack_quorum=3)["ledger"]
    java("append", ledger=ledger, n=1234)
    for bookie_id in bookies.ids:
        assert java("entries", ledger=ledger, bookie=bookie_id)["count"] == 1234
    answer = java("bookies")
    assert sorted(answer["writable"]) == sorted(bookies.ids)  # type: ignore[type-var, arg-type, call-overload]
    assert all(free > 0 for free in answer["free"].values())  # type: ignore[attr-defined]


def test_a_writer_goes_on_without_a_killed_bookie_and_loses_nothing(java: _Java, bookies: Bookies) -> None:
    (spare,) = bookies.start("ours")
    ledger = java("create")["ledger"]
    java("append", ledger=ledger, n=100)
    before = java("metadata", ledger=ledger)["ensembles"]["0"]  # type: ignore[index]
    victim = next(bookie_id for bookie_id in before if bookie_id in bookies.ids_of("ours"))
    java("race", ledger=ledger)
    bookies.kill(victim)
    while java("race_progress", ledger=ledger)["segments"] == 1:
        pass
    answer = java("race_end", ledger=ledger, stop=True)
    assert answer["failed"] is None
    java("close", ledger=ledger)
    ensembles = java("metadata", ledger=ledger)["ensembles"]
    assert len(ensembles) == 2  # type: ignore[arg-type]
    seen = java("read", ledger=ledger)
    assert (seen["count"], seen["bad"]) == (int(str(answer["acked"])) + 1, 0)
    bookies.restart(victim)
    bookies.stop(spare)
