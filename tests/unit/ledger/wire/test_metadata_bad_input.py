"""Bad values of metadata nodes: one typed error that says what was seen, whatever the bytes are."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import msgspec
import pytest

from ledger.core.metadata import DigestType, LedgerMetadata, LedgerState, Segment
from ledger.core.quorum import QuorumConfig
from ledger.errors import CorruptMetadataError
from ledger.wire.metadata_format import (
    LAYOUT,
    METADATA_BYTES_MAX,
    Cookie,
    decode_bookie_service_info,
    decode_cookie,
    decode_layout,
    decode_metadata,
    encode_bookie_service_info,
    encode_cookie,
    encode_metadata,
)
from ledger.wire.proto import data_formats_pb2 as pb
from ledger.wire.varint import encode_varint
from tests.sets import examples

_INPUTS = examples(8_000)
_HEAD = b"BookieMetadataFormatVersion\t"


def _binary(**changes: object) -> bytes:
    fields: dict[str, object] = {"quorumSize": 3, "ensembleSize": 3, "ackQuorumSize": 2, "length": 0, "state": 1}
    segments = changes.pop("segments", [(0, ("a:1", "b:2", "c:3"))])
    message = pb.LedgerMetadataFormat(**{**fields, **changes})  # type: ignore[arg-type]
    for first, bookies in segments:  # type: ignore[attr-defined]
        message.segment.add(ensembleMember=bookies, firstEntryId=first)
    body = message.SerializePartialToString()
    return _HEAD + b"3\n" + encode_varint(len(body)) + body


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"", "no format version"),
        (_HEAD, "format b''"),
        (_HEAD + b"4\n", "format b'4'; 1, 2 and 3 are known"),
        (_HEAD + b"3\n" + bytes(METADATA_BYTES_MAX), "bytes long"),
        (_binary(quorumSize=4), "write quorum 4"),
        (_binary(ackQuorumSize=4), "ack quorum 4"),
        (_binary(ackQuorumSize=0), "ack quorum 0"),
        (_binary(segments=[]), "start at \\[\\]"),
        (_binary(segments=[(1, ("a:1", "b:2", "c:3"))]), "start at \\[1\\]"),
        (_binary(segments=[(0, ("a:1", "b:2", "c:3")), (0, ("a:1", "b:2", "d:3"))]), "start at \\[0, 0\\]"),
        (_binary(segments=[(0, ("a:1", "b:2"))]), "names 2 bookies, not 3"),
        (_binary(segments=[(0, ("a:1", "b:2", "a:1"))]), "names a bookie twice"),
        (_binary(segments=[(0, ("a:1", "b:2", ""))]), "names '', no bookie"),
        (_binary(segments=[(0, ("a:1", "b:2", "c/../d:3"))]), "no bookie"),
        (_binary(state=3), "CLOSED without a last entry"),
        (_binary(state=3, lastEntryId=-2), "last entry -2"),
        (_binary(state=3, lastEntryId=5, length=-1), "length -1"),
        (_HEAD + b"1\n3\n3\n0\n0\ta:1\tb:2\tc:3\n5\tCLOSED\n9\tCLOSED", "follows its end"),
        (_HEAD + b"1\n3\n3\n", "not enough values"),
        (_HEAD + b"1\n3\n3\n0\n0\ta:1\tb:2\tc:3\n99999999999999999999\tCLOSED", "out of range"),
        (_HEAD + b"2\n" + b"segment {" * 1000, "cannot be read"),
        (_HEAD + b"2\nquorumSize: 99999999999\n", "cannot be read"),
    ],
    ids=itertools.count(),
)
def test_metadata_that_nobody_wrote_are_refused_by_name_and_reason(value: bytes, says: str) -> None:
    with pytest.raises(CorruptMetadataError, match=says) as raised:
        decode_metadata(value, ledger_id=77)
    assert "ledger 77" in str(raised.value)
    assert raised.value.ledger_id == 77
    assert len(str(raised.value)) < 1000


def _samples() -> dict[str, tuple[Callable[[bytes], object], list[bytes]]]:
    ledger = LedgerMetadata(
        quorum=QuorumConfig(3, 3, 2),
        state=LedgerState.CLOSED,
        segments=(Segment(0, ("a:1", "b:2", "c:3")), Segment(9, ("a:1", "b:2", "d:4"))),
        digest_type=DigestType.CRC32C,
        password=b"p\x00w",
        last_entry_id=12,
        length=1200,
        created_ms=1_700_000_000_000,
        custom={"k": b"v", "ä": b"\xff"},
        token=1 << 40,
    )
    values = []
    for version in (1, 2, 3):
        values.append(encode_metadata(_replace(ledger, version)))
    cookie = encode_cookie(Cookie("127.0.0.1:3181", "/j", ("/a", "/b"), "uuid"))
    return {
        "metadata": (decode_metadata, values),
        "cookie": (decode_cookie, [cookie]),
        "registration": (decode_bookie_service_info, [encode_bookie_service_info("host", 3181)]),
        "layout": (decode_layout, [LAYOUT]),
    }


def _replace(ledger: LedgerMetadata, version: int) -> LedgerMetadata:
    return msgspec.structs.replace(ledger, format_version=version)


def _damaged(rng: random.Random, value: bytes) -> bytes:
    damaged = bytearray(value)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(damaged) + 1)
        match rng.randrange(6):
            case 0:
                damaged[at:] = b""
            case 1:
                damaged[at:at] = rng.randbytes(rng.randrange(1, 9))
            case 2:
                damaged[at : at + rng.randrange(1, 9)] = b""
            case 3:
                damaged[at:at] = damaged[rng.randrange(len(damaged) + 1) :][:40]
            case 4:
                damaged[at:at] = str(rng.choice((-1, 0, 2**31, 2**63, 10**30))).encode()
            case _:
                if at < len(damaged):
                    damaged[at] = rng.randrange(256)
    return bytes(damaged)


@pytest.mark.filterwarnings("ignore:invalid:DeprecationWarning")  # protobuf, on a damaged escape
@pytest.mark.parametrize("name", ["metadata", "cookie", "registration", "layout"])
def test_a_damaged_value_is_read_or_refused_and_never_anything_else(name: str) -> None:
    decode, values = _samples()[name]
    rng = random.Random(name)
    refused = 0
    for _ in range(_INPUTS):
        value = _damaged(rng, rng.choice(values))
        try:
            decoded = decode(value)
        except CorruptMetadataError:
            refused += 1
        else:
            if isinstance(decoded, LedgerMetadata):
                assert decode_metadata(encode_metadata(decoded)) == decoded
    assert refused > _INPUTS // 10
