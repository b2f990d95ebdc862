"""What goes by itself: only by logged records, never before its time, with its full time again under a new leader."""

from __future__ import annotations

import pytest

from rsm_spark.map import messages as m
from rsm_spark.map.machine import MapMachine
from rsm_spark.map.records import EXPIRED, EXPIRY_CLEARED, LEASE_ENDED
from tests.unit.rsm_spark.map.driven_map import DrivenMap


def granted(driven: DrivenMap, ttl_ms: int) -> int:
    reply = driven.run(m.GrantLease(ttl_ms))
    assert isinstance(reply, m.Granted)
    return reply.lease


def test_a_key_with_a_time_to_live_goes_when_it_is_over_and_not_before() -> None:
    driven = DrivenMap()
    driven.run(m.PutExpiring(b"a", b"1", 500))
    assert driven.machine.next_due_ms(0) == 1_500
    driven.pass_time(499)
    assert driven.get(b"a") == b"1"
    driven.pass_time(1)
    assert driven.get(b"a") is None
    assert driven.log[-2:] == [(EXPIRED, (b"a",)), (EXPIRY_CLEARED, (b"a",))]
    assert driven.machine.next_due_ms(0) is None
    assert list(driven.machine.rows()) == []


def test_a_put_without_a_time_makes_a_key_stay() -> None:
    driven = DrivenMap()
    for command in (m.Put(b"a", b"2"), m.CompareAndSet(b"a", b"1", b"2")):
        driven.run(m.PutExpiring(b"a", b"1", 500))
        driven.run(command)
        driven.pass_time(10_000)
        assert driven.get(b"a") == b"2"
        assert driven.ask(m.ShowExpiry(b"a")) == m.ExpiryShown(0, 0, 0)


def test_an_increment_leaves_the_time_as_it_is() -> None:
    driven = DrivenMap()
    driven.run(m.PutExpiring(b"n", b"1", 500))
    driven.pass_time(400)
    driven.run(m.Increment(b"n"))
    driven.pass_time(100)
    assert driven.get(b"n") is None


def test_a_deleted_key_takes_its_time_with_it() -> None:
    driven = DrivenMap()
    driven.run(m.PutExpiring(b"a", b"1", 500))
    driven.run(m.Delete(b"a"))
    driven.run(m.Put(b"a", b"2"))
    driven.pass_time(10_000)
    assert driven.get(b"a") == b"2"
    driven.machine.validate()


def test_a_key_that_got_the_same_end_twice_goes_once() -> None:
    driven = DrivenMap()
    driven.run(m.PutExpiring(b"a", b"1", 500))
    driven.run(m.Put(b"a", b"2"))
    driven.run(m.PutExpiring(b"a", b"3", 400))
    driven.run(m.Put(b"a", b"4"))
    driven.run(m.PutExpiring(b"a", b"5", 500))
    driven.run(m.PutExpiring(b"b", b"1", 500))
    driven.pass_time(500)
    gone = [fields[0] for record_type, fields in driven.log if record_type == EXPIRED]
    assert gone == [b"a", b"b"]
    assert driven.machine.next_due_ms(0) is None


def test_a_lease_that_is_kept_lives_on_and_one_that_is_not_takes_its_keys() -> None:
    driven = DrivenMap()
    lease = granted(driven, 1_000)
    driven.run(m.PutExpiring(b"a", b"1", 0, lease))
    driven.run(m.PutExpiring(b"b", b"1", 0, lease))
    for _ in range(5):
        driven.pass_time(900)
        assert driven.run(m.KeepLease(lease)) == m.Kept(1_000)
    assert driven.ask(m.ShowLease(lease)) == m.LeaseShown(lease, 1_000, driven.now_ms, 2)
    driven.pass_time(1_000)
    assert (driven.get(b"a"), driven.get(b"b")) == (None, None)
    assert driven.run(m.KeepLease(lease)) == m.NotFound()
    assert driven.run(m.RevokeLease(lease)) == m.NotFound()
    assert driven.ask(m.ShowLease(lease)) == m.NotFound()
    assert isinstance(driven.run(m.PutExpiring(b"a", b"1", 0, lease)), m.MapRefused)


def test_a_revoked_lease_takes_its_keys_with_it_at_once() -> None:
    driven = DrivenMap()
    lease, other = granted(driven, 1_000), granted(driven, 9_000)
    driven.run(m.PutExpiring(b"a", b"1", 0, lease))
    driven.run(m.PutExpiring(b"b", b"1", 0, lease))
    driven.run(m.PutExpiring(b"b", b"1", 0, other))
    assert driven.run(m.RevokeLease(lease)) == m.Removed(1, 11)
    assert (driven.get(b"a"), driven.get(b"b")) == (None, b"1")
    assert driven.ask(m.ListLeases(0, 10)) == m.Leases([m.LeaseShown(other, 9_000, 1_000, 1)])
    assert driven.ask(m.ShowExpiry(b"b")) == m.ExpiryShown(9_000, 1_000, other)


def test_a_new_leader_gives_everything_its_full_time_again() -> None:
    driven = DrivenMap()
    lease = granted(driven, 1_000)
    driven.run(m.PutExpiring(b"a", b"1", 1_000))
    driven.run(m.PutExpiring(b"b", b"1", 0, lease))
    driven.now_ms += 999
    driven.fail_over()
    assert driven.machine.next_due_ms(driven.promoted_ms) == driven.now_ms + 1_000
    driven.pass_time(999)
    assert driven.get(b"a") == driven.get(b"b") == b"1"
    driven.pass_time(1)
    assert driven.get(b"a") is driven.get(b"b") is None


def test_a_lease_of_many_keys_ends_first_and_its_keys_go_entry_by_entry() -> None:
    driven = DrivenMap()
    lease = granted(driven, 1_000)
    for n in range(25):
        driven.run(m.PutExpiring(b"%02d" % n, b"", 0, lease))
    driven.now_ms += 1_000
    driven._apply(driven.machine.due(driven.now_ms, 0, 10))
    assert 0 < len(driven.machine) < 25
    assert driven.run(m.KeepLease(lease)) == m.NotFound(), "half of it is gone: nobody can keep it"
    driven.fail_over()
    assert driven.pass_time(0, limit=10) > 1, "a new leader does not bring back what has ended"
    assert len(driven.machine) == 0
    assert list(driven.machine.rows()) == []


def test_the_first_records_of_what_is_due_are_right_on_their_own() -> None:
    driven = DrivenMap()
    lease = granted(driven, 10)
    driven.run(m.PutExpiring(b"a", b"", 10))
    driven.run(m.PutExpiring(b"b", b"", 0, lease))
    driven.now_ms += 10
    seen = []
    while records := driven.machine.due(driven.now_ms, 0, 100):
        seen.append(records[0])
        driven._apply(records[:1])
        driven.machine.validate()
    assert seen.count((LEASE_ENDED, (lease,))) == 1
    assert len(driven.machine) == 0


def test_due_changes_nothing_until_its_records_are_applied() -> None:
    driven = DrivenMap()
    driven.run(m.PutExpiring(b"a", b"", 10))
    first = driven.machine.due(5_000, 0, 100)
    assert driven.machine.due(5_000, 0, 100) == first
    assert driven.machine.next_due_ms(0) == 1_010
    assert driven.get(b"a") == b""


def test_what_is_set_again_and_again_does_not_pile_up() -> None:
    driven = DrivenMap()
    lease = granted(driven, 1_000)
    for n in range(5_000):
        driven.now_ms += 1
        driven.run(m.PutExpiring(b"a", b"", 1_000_000 - n * 10))
        driven.run(m.KeepLease(lease))
    assert len(driven.machine._expiries._heap) < 2_000
    driven.machine.validate()


@pytest.mark.parametrize(
    "command",
    [
        m.PutExpiring(b"a", b"", 0),
        m.PutExpiring(b"a", b"", -1),
        m.PutExpiring(b"a", b"", m.TTL_MS_MAX + 1),
        m.PutExpiring(b"a", b"", 5, 5),
        m.PutExpiring(b"a", b"", 0, -5),
        m.PutExpiring(b"a", b"", 0, 5),
        m.GrantLease(0),
        m.GrantLease(m.TTL_MS_MAX + 1),
    ],
)
def test_a_time_that_is_none_is_refused_in_words(command: m.MapCommand) -> None:
    driven = DrivenMap()
    reply = driven.run(command)
    assert isinstance(reply, m.MapRefused)
    assert reply.reason
    assert driven.revision == 0


def test_expiries_and_leases_survive_a_snapshot_and_a_replay() -> None:
    driven = DrivenMap()
    lease = granted(driven, 1_000)
    driven.run(m.PutExpiring(b"a", b"1", 2_000))
    driven.run(m.PutExpiring(b"b", b"1", 0, lease))
    restored = MapMachine()
    restored.restore(driven.machine.rows())
    for machine in (restored, driven.replayed()):
        machine.validate()
        assert list(machine.rows()) == list(driven.machine.rows())
        assert machine.next_due_ms(0) == driven.machine.next_due_ms(0) == 2_000
