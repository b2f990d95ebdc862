"""What a bookie says that it holds, against what it should hold."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.core.bookie_entry_list import pack_entry_ids
from ledger.core.quorum import QuorumConfig
from ledger.errors import RemoteProtocolError
from ledger.replication.core.fragments import Share
from ledger.replication.core.held_entries import NOTHING_HELD, unpack_held_entries


@given(st.data())
def test_missing_is_the_share_without_what_is_held(data) -> None:
    size = data.draw(st.integers(1, 5))
    quorum = QuorumConfig(size, data.draw(st.integers(1, size)), 1)
    first = data.draw(st.integers(0, 30))
    share = Share(first, first + data.draw(st.integers(-1, 60)), data.draw(st.integers(0, size - 1)), quorum)
    whole = list(share.between(0, 1000))
    ids = data.draw(
        st.one_of(
            st.lists(st.integers(0, 120), unique=True),
            st.lists(st.sampled_from(whole), unique=True).map(lambda lost: [i for i in whole if i not in lost])
            if whole
            else st.just([]),
        ).map(sorted)
    )
    held = unpack_held_entries(pack_entry_ids(ids))
    assert list(held.missing(share)) == [i for i in whole if i not in ids]


def test_of_nothing_held_the_whole_share_is_missing() -> None:
    share = Share(3, 8, 0, QuorumConfig(3, 2, 2))
    assert list(NOTHING_HELD.missing(share)) == [3, 5, 6, 8]


def test_a_striped_share_held_in_full_takes_no_step_per_entry() -> None:
    share = Share(0, 3 * 10**12 - 1, 0, QuorumConfig(3, 2, 2))
    packed = struct.pack(">ii", 0, 2).ljust(64, b"\0")
    packed += struct.pack(">qqii", 0, 0, 1, 0) + struct.pack(">qqii", 2, 3 * 10**12 - 1, 2, 3)
    assert next(unpack_held_entries(packed).missing(share), None) is None


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        bytes(63),
        struct.pack(">ii", 1, 0).ljust(64, b"\0"),
        struct.pack(">ii", 0, 1).ljust(64, b"\0"),
        struct.pack(">ii", 0, -1).ljust(64, b"\0"),
        struct.pack(">ii", 0, 1).ljust(64, b"\0") + struct.pack(">qqii", 5, 4, 1, 1),
        struct.pack(">ii", 0, 1).ljust(64, b"\0") + struct.pack(">qqii", 0, 4, 1, 0),
        struct.pack(">ii", 0, 1).ljust(64, b"\0") + struct.pack(">qqii", 0, 0, 0, 0),
        struct.pack(">ii", 0, 2).ljust(64, b"\0") + struct.pack(">qqii", 0, 9, 1, 3) + struct.pack(">qqii", 1, 1, 1, 0),
    ],
)
def test_a_list_that_is_none_is_refused(packed) -> None:
    with pytest.raises(RemoteProtocolError):
        unpack_held_entries(packed)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_list_or_one_error(packed) -> None:
    try:
        unpack_held_entries(packed)
    except RemoteProtocolError:
        pass
