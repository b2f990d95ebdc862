"""Marks, locks and votes as BookKeeper writes them: each text below is what its own auditor or worker left."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.errors import CorruptMetadataError
from ledger.wire import underreplication as u


@pytest.mark.parametrize(
    ("ledger_id", "path"),
    [
        (0, "/ledgers/underreplication/ledgers/0000/0000/0000/0000/urL0000000000"),
        (123_456, "/ledgers/underreplication/ledgers/0000/0000/0001/e240/urL0000123456"),
        ((1 << 63) - 1, "/ledgers/underreplication/ledgers/7fff/ffff/ffff/ffff/urL9223372036854775807"),
    ],
)
def test_a_mark_lies_under_its_id_in_hexadecimal(ledger_id, path) -> None:
    assert u.mark_path("/ledgers", ledger_id) == path
    assert u.ledger_id_of_mark(path.rpartition("/")[2]) == ledger_id


def test_a_lock_has_the_name_of_the_mark() -> None:
    assert u.lock_path("/ledgers", 7) == "/ledgers/underreplication/locks/urL0000000007"


@pytest.mark.parametrize("name", ["urL", "urL12", "urLx", "xurL0000000001", "urL00000000010000000000000"])
def test_other_nodes_are_no_marks(name) -> None:
    assert u.ledger_id_of_mark(name) is None


def test_a_mark_is_text_with_one_line_a_bookie() -> None:
    mark = u.Mark(("127.0.0.1:3181", "127.0.0.1:3182"), 1_700_000_000_123)
    value = b'replica: "127.0.0.1:3181"\nreplica: "127.0.0.1:3182"\nctime: 1700000000123\n'
    assert u.encode_mark(mark) == value
    assert u.decode_mark(value, 1) == mark


def test_a_mark_without_names_is_one_too() -> None:
    assert u.decode_mark(b"", 1) == u.Mark(())


def test_fields_of_later_versions_are_passed_over() -> None:
    assert u.decode_mark(b'replica: "b:1"\nfuture: 3\n', 1) == u.Mark(("b:1",))


def test_locks_and_votes_tell_whose_they_are() -> None:
    assert u.encode_lock("host:1") == b'bookieId: "host:1"\n'
    assert u.decode_owner(u.encode_vote("host:2")) == "host:2"
    assert u.decode_owner(b"") is None


def test_votes_count_by_their_number() -> None:
    assert u.vote_number("V_0000000012") == 12
    assert u.vote_number("V_12x") is None


def test_the_delay_is_digits() -> None:
    assert u.encode_delay(60) == b"60"
    assert u.decode_delay(b"60") == 60


def test_the_time_of_a_check_is_binary() -> None:
    assert u.decode_check_time(u.encode_check_time(1_700_000_000_000)) == 1_700_000_000_000
    assert u.decode_check_time(b"") is None


def test_the_layout_is_the_one_known() -> None:
    u.check_layout(u.LAYOUT)
    with pytest.raises(CorruptMetadataError):
        u.check_layout(b'type: "BASIC"\nversion: 2\n')
    with pytest.raises(CorruptMetadataError):
        u.check_layout(b"")


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_one_error(value) -> None:
    for decode in (lambda v: u.decode_mark(v, 1), u.decode_owner, u.decode_delay, u.decode_check_time, u.check_layout):
        try:
            decode(value)
        except CorruptMetadataError:
            pass
