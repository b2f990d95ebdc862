"""The map on simulated replicas: nothing ends before its full time, watchers see each change once and in order.

Leases, times to live and watches of the real machine, change feed and watch service, while replicas are killed, paused
and cut off, their clocks jump, disks are lost and the log is trimmed. Planted bugs must be found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from rsm_spark.core.envelope import decode_envelope
from rsm_spark.core.machine import Decision
from rsm_spark.map.client.watch_place import WatchPlace
from rsm_spark.map.commands import Kept, NotFound
from rsm_spark.map.draft import Draft
from rsm_spark.map.expiries import Expiries
from rsm_spark.map.machine import MapMachine
from rsm_spark.map.messages import encode
from rsm_spark.map.records import LEASE_KEPT
from rsm_spark.runtime.change_feed import ChangeFeed, FeedCursor, FeedEntry
from rsm_spark.runtime.change_filter import TableChange
from rsm_spark.transport import watch_service
from rsm_spark.transport.watch_codec import ReceivedChanges
from tests.sim.ledger_seeds import first_seed
from tests.sim.map_scenario import run_map_seed
from tests.sim.planted_bugs import find

_SEEDS = 25


@pytest.mark.parametrize("seed_count", [10, pytest.param(1_000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_nothing_ends_early_and_watchers_see_everything_once_whatever_fails(seed_count: int) -> None:
    counts: Counter[str] = Counter()
    for number in range(seed_count):
        outcome = run_map_seed(first_seed() + number)
        assert outcome.broken is None, outcome.report()
        counts.update(outcome.counts)
    print(dict(counts))
    for name in ("ended_by_time", "log_reads", "seen"):
        assert counts[name] > 5 * seed_count, f"too little {name} for this to mean anything"
    assert counts["skipped"] > 0 or seed_count < 1_000


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_same_holds_on_real_bookies() -> None:
    for number in range(_SEEDS):
        outcome = run_map_seed(first_seed() + number, on_bookies=True)
        assert outcome.broken is None, outcome.report()


def test_without_faults_all_is_answered_and_seen() -> None:
    outcome = run_map_seed(1, faults=None)
    assert outcome.broken is None, outcome.report()
    assert outcome.counts["acked"] > 150
    assert outcome.counts["seen"] > 150


def _counts_from_the_log_alone(patch: pytest.MonkeyPatch) -> None:
    """A new leader does not give leases their full time again (design D11)."""
    due_ms = Expiries._due_ms
    patch.setattr(Expiries, "_due_ms", lambda self, thing, _promoted_ms: due_ms(self, thing, 0))


def _keeps_without_time(patch: pytest.MonkeyPatch) -> None:
    """A lease that is kept counts from when it was granted."""

    def keep(self: MapMachine, lease: int, _now_ms: int) -> Decision:
        found = self._expiries.leases.get(lease)
        if found is None:
            return Decision((), encode(NotFound()))
        return Decision(((LEASE_KEPT, (lease, found.ttl_ms, found.since_ms)),), encode(Kept(found.ttl_ms)))

    patch.setattr(MapMachine, "_keep", keep)


def _gives_again_what_is_applied_again(patch: pytest.MonkeyPatch) -> None:
    """A replica that is built anew applies entries again: its feed shows them again."""
    keep = ChangeFeed._keep

    def keep_all(self: ChangeFeed, payload: bytes) -> None:
        envelope = decode_envelope(payload)
        if envelope.record_count and envelope.last_revision <= self._last_revision:
            self._entries.append(FeedEntry(payload, envelope))
        keep(self, payload)

    patch.setattr(ChangeFeed, "_keep", keep_all)


def _jumps_over_what_a_snapshot_brought(patch: pytest.MonkeyPatch) -> None:
    """The ring is read as if it had no gap."""
    recent = ChangeFeed.recent

    def recent_of_all(self: ChangeFeed, revision: int) -> list[FeedEntry] | None:
        found = recent(self, revision)
        return list(self._entries[self._head :]) if found is None and self._head < len(self._entries) else found

    patch.setattr(ChangeFeed, "recent", recent_of_all)


def _says_where_the_replica_is(patch: pytest.MonkeyPatch) -> None:
    """A watcher who was given nothing is told how far the replica is, not how far it was told."""
    read = FeedCursor.read

    async def read_on(self: FeedCursor, timeout_s: float) -> list[FeedEntry]:
        entries = await read(self, timeout_s)
        if entries and entries[-1].last_revision < self._feed.revision:
            self.next_revision = self._feed.revision + 1
        return entries

    patch.setattr(FeedCursor, "read", read_on)


def _dates_each_key_by_its_own_record(patch: pytest.MonkeyPatch) -> None:
    """Keys of one command have several mod revisions."""
    patch.setattr(Draft, "dated_records", lambda self: self.records)


def _goes_on_within_a_command(patch: pytest.MonkeyPatch) -> None:
    """A watcher's process counts a command as told with its first change."""
    take = WatchPlace.take

    def take_each(self: WatchPlace, received: ReceivedChanges) -> Iterator[tuple[TableChange, bool]]:
        for change, is_last in take(self, received):
            self.revision = max(self.revision, change.mod_revision)
            yield change, is_last

    patch.setattr(WatchPlace, "take", take_each)


def _tells_a_command_as_told_with_each_message(patch: pytest.MonkeyPatch) -> None:
    """A message that ends within a command says that all of it has been sent."""
    patch.setattr(watch_service, "_told_up_to", lambda changes, count: changes[count - 1].mod_revision)


class _Hunt(NamedTuple):
    """How a bug is looked for: seeds, the invariant that breaks, what is not as drawn, who found it before."""

    budget: int
    name: str
    faults: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    known: int = 0


@pytest.mark.parametrize(("plant", "hunt"), [
    (_counts_from_the_log_alone, _Hunt(40, "time-is-data", {"skew": 3.0, "kill_leader": 3.0})),
    (_keeps_without_time, _Hunt(20, "time-is-data", known=1)),
    (_gives_again_what_is_applied_again, _Hunt(40, "watch", {"interval_s": 0.3, "elect_wrongly": 6.0}, known=14)),
    (_jumps_over_what_a_snapshot_brought, _Hunt(20, "watch")),
    (_says_where_the_replica_is, _Hunt(20, "watch")),
    (_dates_each_key_by_its_own_record, _Hunt(10, "counts")),
    (_goes_on_within_a_command, _Hunt(40, "watch", known=1)),
    (_tells_a_command_as_told_with_each_message, _Hunt(40, "watch", known=1)),
])  # fmt: skip
def test_planted_bugs_of_the_map_are_found(
    plant: Callable[[pytest.MonkeyPatch], None], hunt: _Hunt, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    find(
        lambda seed: run_map_seed(seed, faults=hunt.faults, settings=hunt.settings),
        hunt.budget,
        known=hunt.known,
        name=hunt.name,
    )
