"""The place of a watch: by command, over messages and streams that end within one, from replicas of any version."""

from __future__ import annotations

from rsm_spark.core.records import pack
from rsm_spark.map.client.watch_place import WatchPlace
from rsm_spark.map.records import DELETED, PUT
from rsm_spark.runtime.change_filter import TableChange
from rsm_spark.transport.watch_codec import ReceivedChanges


def _put(revision: int, mod_revision: int, *, is_told: bool = True) -> TableChange:
    row = pack((b"", revision, 1, None if mod_revision == revision else mod_revision))
    told = mod_revision if is_told else 0
    return TableChange(revision, PUT, pack((b"%d" % revision,)), row, 0, mod_revision=told)


def _deleted(revision: int, mod_revision: int = 0) -> TableChange:
    return TableChange(revision, DELETED, pack((b"%d" % revision,)), None, 0, mod_revision=mod_revision)


def _take(place: WatchPlace, changes: list[TableChange], up_to: int) -> list[tuple[int, bool, int]]:
    return [
        (change.revision, is_last, place.revision)
        for change, is_last in place.take(ReceivedChanges(changes, up_to))
    ]  # fmt: skip


def test_a_command_is_behind_the_place_with_its_last_change() -> None:
    place = WatchPlace(0)
    assert (place.begins_now, place.next_revision) == (True, 0)
    assert _take(place, [], 4) == []
    assert (place.begins_now, place.next_revision) == (False, 5)
    changes = [_put(5, 7), _put(6, 7), _deleted(7, 7), _put(8, 8)]
    assert _take(place, changes, 8) == [(5, False, 4), (6, False, 4), (7, True, 7), (8, True, 8)]
    assert _take(place, [], 11) == []
    assert place.revision == 11


def test_a_message_and_a_stream_may_end_within_a_command() -> None:
    place = WatchPlace(1)
    assert _take(place, [_put(1, 1), _put(2, 6), _put(3, 6)], 1) == [(1, True, 1), (2, False, 1), (3, False, 1)]
    assert place.next_revision == 2
    assert [place.settled(revision) for revision in (0, 1, 3, 6, 9)] == [0, 1, 1, 1, 9]
    # Another replica tells all of the command; what has been given is not given again.
    assert _take(place, [_put(2, 6), _put(3, 6), _put(5, 6)], 6) == [(5, True, 6)]
    assert place.settled(6) == 6


def test_who_gives_up_within_a_command_begins_before_it() -> None:
    place = WatchPlace(1)
    for change, _ in place.take(ReceivedChanges([_put(1, 1), _put(2, 3), _put(3, 3)], 3)):
        if change.revision == 2:
            break
    assert place.next_revision == 2
    again = WatchPlace(place.next_revision)
    assert [change for change, _, _ in _take(again, [_put(2, 3), _put(3, 3)], 3)] == [2, 3]


def test_a_command_whose_rest_is_not_wanted_ends_with_what_its_message_says() -> None:
    place = WatchPlace(1, (PUT,))
    assert _take(place, [_put(1, 3), _deleted(2, 3), _deleted(3, 3)], 3) == [(1, True, 3)]
    # The range ends within the command, and the message within the range.
    assert _take(place, [_put(4, 9)], 3) == [(4, False, 3)]
    assert _take(place, [], 9) == []
    assert place.settled(9) == 9


def test_replicas_of_before_tell_no_mod_revisions_and_rows_say_them() -> None:
    place = WatchPlace(1)
    told = [_put(1, 2, is_told=False), _put(2, 2, is_told=False), _deleted(3)]
    assert _take(place, told, 3) == [(1, False, 0), (2, True, 2), (3, True, 3)]
    short = TableChange(4, PUT, pack((b"4",)), pack((b"",)), 0)
    assert _take(place, [short], 4) == [(4, True, 4)]
