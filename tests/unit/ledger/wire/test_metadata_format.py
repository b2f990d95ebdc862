"""Metadata values are those of BookKeeper."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.core.metadata import DigestType, LedgerMetadata, LedgerState, Segment
from ledger.core.quorum import QuorumConfig
from ledger.errors import CorruptMetadataError, UsageError
from ledger.wire import paths
from ledger.wire.metadata_format import (
    LAYOUT,
    Cookie,
    decode_bookie_service_info,
    decode_cookie,
    decode_layout,
    decode_metadata,
    encode_bookie_service_info,
    encode_cookie,
    encode_metadata,
)
from ledger.wire.paths import Layout

bookies = st.lists(st.text("abc.:0123", min_size=1, max_size=9), min_size=3, max_size=3, unique=True).map(tuple)


@st.composite
def ledgers(draw: st.DrawFn) -> LedgerMetadata:
    firsts = [0, *sorted(draw(st.sets(st.integers(1, 2**40), max_size=3)))]
    state = draw(st.sampled_from(list(LedgerState)))
    closed = state == LedgerState.CLOSED
    return LedgerMetadata(
        quorum=QuorumConfig(3, 3, draw(st.integers(1, 3))),
        state=state,
        segments=tuple(Segment(first, draw(bookies)) for first in firsts),
        digest_type=draw(st.sampled_from(list(DigestType))),
        password=draw(st.binary(max_size=9)),
        last_entry_id=draw(st.integers(-1, 2**40)) if closed else -1,
        length=draw(st.integers(0, 2**40)) if closed else 0,
        created_ms=draw(st.integers(0, 2**42)),
        custom=draw(st.dictionaries(st.text(max_size=5), st.binary(max_size=5), max_size=3)),
        token=draw(st.integers(0, 2**63 - 1)),
    )


@given(ledgers())
def test_metadata_survive_a_round_trip(metadata: LedgerMetadata) -> None:
    assert decode_metadata(encode_metadata(metadata)) == metadata


@given(ledgers(), st.integers(0, 2**31))
def test_metadata_that_are_cut_are_refused(metadata: LedgerMetadata, cut: int) -> None:
    value = encode_metadata(metadata)
    with pytest.raises(CorruptMetadataError):
        decode_metadata(value[: cut % len(value)], ledger_id=3)


def test_metadata_in_text_are_read() -> None:
    value = (
        b"BookieMetadataFormatVersion\t2\n"
        b"quorumSize: 2\nensembleSize: 3\nlength: 0\nstate: OPEN\n"
        b'segment {\n  ensembleMember: "a:1"\n  ensembleMember: "b:2"\n  ensembleMember: "c:3"\n  firstEntryId: 0\n}\n'
        b'digestType: CRC32\npassword: "pw"\nackQuorumSize: 2\n'
    )
    metadata = decode_metadata(value)
    assert metadata.quorum == QuorumConfig(3, 2, 2)
    assert metadata.segments == (Segment(0, ("a:1", "b:2", "c:3")),)
    assert (metadata.digest_type, metadata.password, metadata.last_entry_id) == (DigestType.CRC32, b"pw", -1)


_LINES = b"BookieMetadataFormatVersion\t1\n2\n3\n0\n0\ta:1\tb:2\tc:3\n7\ta:1\tb:2\td:4\n"


def test_metadata_in_lines_are_read() -> None:
    metadata = decode_metadata(_LINES)
    assert metadata.quorum == QuorumConfig(3, 2, 2)
    assert metadata.segments == (Segment(0, ("a:1", "b:2", "c:3")), Segment(7, ("a:1", "b:2", "d:4")))
    assert (metadata.state, metadata.last_entry_id) == (LedgerState.OPEN, -1)
    assert decode_metadata(_LINES + b"-102\tCLOSED").state == LedgerState.IN_RECOVERY
    closed = decode_metadata(_LINES.replace(b"3\n0\n", b"3\n500\n") + b"9\tCLOSED")
    assert (closed.state, closed.last_entry_id, closed.length) == (LedgerState.CLOSED, 9, 500)


@pytest.mark.parametrize("end", [b"", b"-102\tCLOSED", b"9\tCLOSED", b"-1\tCLOSED"])
def test_metadata_in_lines_stay_in_lines(end: bytes) -> None:
    assert encode_metadata(decode_metadata(_LINES + end)) == _LINES + end


@given(ledgers())
def test_metadata_in_text_stay_in_text(metadata: LedgerMetadata) -> None:
    metadata = msgspec.structs.replace(metadata, format_version=2, token=0)
    value = encode_metadata(metadata)
    assert value.startswith(b"BookieMetadataFormatVersion\t2\nquorumSize: 3\n")
    assert decode_metadata(value) == metadata


def test_a_cookie_is_the_text_that_bookkeeper_writes() -> None:
    cookie = Cookie("127.0.0.1:3181", "/j", ("/a", "/b"), "uuid")
    text = encode_cookie(cookie)
    assert text == b'5\nbookieHost: "127.0.0.1:3181"\njournalDir: "/j"\nledgerDirs: "2\\t/a\\t/b"\ninstanceId: "uuid"\n'
    assert decode_cookie(text) == cookie


@pytest.mark.parametrize("text", [b"", b'4\nbookieHost: "x"', b"5\nnonsense {", b'5\nbookieHost: "x"'])
def test_a_damaged_cookie_is_refused(text: bytes) -> None:
    with pytest.raises(CorruptMetadataError):
        decode_cookie(text)


def test_a_registration_names_the_endpoint() -> None:
    assert decode_bookie_service_info(encode_bookie_service_info("h", 3181)) == ("h", 3181)
    assert decode_bookie_service_info(b"") is None
    with pytest.raises(CorruptMetadataError):
        decode_bookie_service_info(b"\xff\xff")


def test_both_trees_of_ledgers_are_known_and_another_layout_is_named() -> None:
    assert decode_layout(LAYOUT) is Layout.HIERARCHICAL
    long = b"2\norg.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory:1"
    assert decode_layout(long) is Layout.LONG_HIERARCHICAL
    for foreign in (b"2\norg.apache.bookkeeper.meta.FlatLedgerManagerFactory:1", b"1\nflat:1", b"", LAYOUT[:-1] + b"2"):
        with pytest.raises(CorruptMetadataError, match=re.escape(repr(foreign))):
            decode_layout(foreign)


@pytest.mark.parametrize(
    ("ledger_id", "path"),
    [
        (25, "/ledgers/00/0000/L0025"),
        (2**31 - 1, "/ledgers/21/4748/L3647"),
        (2**31, "/ledgers/000/0000/0021/4748/L3648"),
        (2**63 - 1, "/ledgers/922/3372/0368/5477/L5807"),
    ],
)
def test_a_ledger_has_its_path(ledger_id: int, path: str) -> None:
    assert paths.ledger_path("/ledgers", ledger_id) == path
    assert paths.ledger_id_of(path, "/ledgers") == ledger_id


@pytest.mark.parametrize(
    "path", ["/ledgers/LAYOUT", "/ledgers/00/0000", "/ledgers/0/0000/L0025", "/other/00/0000/L0025", "/ledgers/L1"]
)
def test_what_is_no_ledger_has_no_id(path: str) -> None:
    assert paths.ledger_id_of(path, "/ledgers") is None


def test_a_ledger_id_out_of_range_is_refused() -> None:
    for ledger_id in (-1, 2**63):
        with pytest.raises(UsageError):
            paths.ledger_path("/ledgers", ledger_id)


@given(st.integers(0, 2**63 - 1))
def test_every_ledger_id_is_found_from_its_path(ledger_id: int) -> None:
    path = paths.ledger_path("/l", ledger_id)
    assert paths.ledger_id_of(path, "/l") == ledger_id
    parts = path.split("/")[2:-1]
    assert all(paths.is_ledger_branch(name, depth) for depth, name in enumerate(parts))
