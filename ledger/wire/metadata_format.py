"""Values of BookKeeper's ZooKeeper nodes: ledger metadata, cookies, bookie registrations, the layout.

Ledger metadata is written in format 3 (binary protobuf) and read in 3 and 2 (text protobuf).
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

import msgspec
from google.protobuf import text_format
from google.protobuf.message import DecodeError

from ledger.core.metadata import NO_ENTRY, DigestType, LedgerMetadata, LedgerState, Segment
from ledger.core.quorum import QuorumConfig
from ledger.errors import CorruptMetadataError, UsageError
from ledger.wire.proto import data_formats_pb2 as pb
from ledger.wire.varint import decode_varint, encode_varint

__all__ = [
    "LAYOUT",
    "Cookie",
    "check_layout",
    "decode_bookie_service_info",
    "decode_cookie",
    "decode_metadata",
    "encode_bookie_service_info",
    "encode_cookie",
    "encode_metadata",
]

LAYOUT: Final = b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"
"""Value of the layout node: format 2, the manager that keeps ledgers in a tree, its version."""

_PREFIX: Final = b"BookieMetadataFormatVersion\t"
_COOKIE_VERSION: Final = b"5\n"
_VARINT: Final = re.compile(rb"[\x80-\xff]{0,9}[\x00-\x7f]")


class Cookie(msgspec.Struct, frozen=True):
    """Identity of a bookie's disks, kept in ZooKeeper and in every directory; any difference refuses a start.

    Attributes:
        bookie_id: "host:port".
        journal_dirs: As configured; several are separated by commas.
        ledger_dirs: Absolute paths.
        instance_id: uuid of the cluster.

    """

    bookie_id: str
    journal_dirs: str
    ledger_dirs: tuple[str, ...]
    instance_id: str | None


def encode_metadata(metadata: LedgerMetadata) -> bytes:
    """Return the value of a ledger's node, in format 3."""
    message = pb.LedgerMetadataFormat(
        quorumSize=metadata.quorum.write_quorum,
        ensembleSize=metadata.quorum.ensemble_size,
        ackQuorumSize=metadata.quorum.ack_quorum,
        length=metadata.length,
        lastEntryId=metadata.last_entry_id,
        state=metadata.state,  # type: ignore[arg-type]
        digestType=metadata.digest_type,  # type: ignore[arg-type]
        password=metadata.password,
        ctime=metadata.created_ms,
        cToken=metadata.token,
    )
    for segment in metadata.segments:
        message.segment.add(ensembleMember=segment.bookies, firstEntryId=segment.first_entry_id)
    for key in sorted(metadata.custom):
        message.customMetadata.add(key=key, value=metadata.custom[key])
    body = message.SerializeToString()
    return b"".join((_PREFIX, b"3\n", encode_varint(len(body)), body))


def decode_metadata(value: bytes, *, ledger_id: int | None = None) -> LedgerMetadata:
    """Read the value of a ledger's node.

    Raises:
        CorruptMetadataError: It is in a format that this version does not read, or is damaged.

    """
    where = f"the metadata of ledger {ledger_id}" if ledger_id is not None else "ledger metadata"
    if not value.startswith(_PREFIX):
        raise CorruptMetadataError(f"{where} begins with {value[:16]!r}, no format version", ledger_id=ledger_id)
    version, _, body = value[len(_PREFIX) :].partition(b"\n")
    if version == b"1":
        raise CorruptMetadataError(
            f"{where} is in format 1, which is read-only history of BookKeeper before 4.2; convert it with "
            "BookKeeper's own tools first",
            ledger_id=ledger_id,
        )
    if version not in (b"2", b"3"):
        raise CorruptMetadataError(f"{where} is in format {version!r}; 2 and 3 are known", ledger_id=ledger_id)
    try:
        message = _parse_binary(body) if version == b"3" else _parse_text(body)
        return _from_message(message)
    except (DecodeError, ValueError, UsageError, text_format.ParseError) as error:
        raise CorruptMetadataError(f"{where} cannot be read: {error}", ledger_id=ledger_id) from error


def encode_cookie(cookie: Cookie) -> bytes:
    """Return the text of a cookie, for its node and for the VERSION file of every directory."""
    message = pb.CookieFormat(
        bookieHost=cookie.bookie_id,
        journalDir=cookie.journal_dirs,
        ledgerDirs="\t".join((str(len(cookie.ledger_dirs)), *cookie.ledger_dirs)),
    )
    if cookie.instance_id is not None:
        message.instanceId = cookie.instance_id
    return _COOKIE_VERSION + text_format.MessageToString(message).encode()


def decode_cookie(value: bytes) -> Cookie:
    """Read a cookie.

    Raises:
        CorruptMetadataError: It is of another version, or damaged.

    """
    if not value.startswith(_COOKIE_VERSION):
        raise CorruptMetadataError(f"a cookie begins with {value[:16]!r}; version 5 is known")
    message = pb.CookieFormat()
    try:
        text_format.Parse(value[len(_COOKIE_VERSION) :].decode(), message, allow_unknown_field=True)
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise CorruptMetadataError(f"a cookie cannot be read: {error}") from error
    count, *ledger_dirs = message.ledgerDirs.split("\t")
    if count != str(len(ledger_dirs)):
        raise CorruptMetadataError(f"a cookie announces {count} ledger directories and names {len(ledger_dirs)}")
    return Cookie(
        message.bookieHost,
        message.journalDir,
        tuple(ledger_dirs),
        message.instanceId if message.HasField("instanceId") else None,
    )


def encode_bookie_service_info(host: str, port: int) -> bytes:
    """Return the value of a bookie's registration: where its protocol endpoint listens."""
    message = pb.BookieServiceInfoFormat()
    message.endpoints.add(id="bookie", port=port, host=host, protocol="bookie-rpc")
    return message.SerializeToString()


def decode_bookie_service_info(value: bytes) -> tuple[str, int] | None:
    """Return (host, port) of a bookie's protocol endpoint; None if the registration names none (old bookies).

    Raises:
        CorruptMetadataError: It is damaged.

    """
    message = pb.BookieServiceInfoFormat()
    try:
        message.ParseFromString(value)
    except DecodeError as error:
        raise CorruptMetadataError(f"a bookie's registration cannot be read: {error}") from error
    for endpoint in message.endpoints:
        if endpoint.protocol == "bookie-rpc":
            return endpoint.host, endpoint.port
    return None


def check_layout(value: bytes) -> None:
    """Refuse a cluster whose ledgers are kept in another way than ours.

    Raises:
        CorruptMetadataError: The layout node names another manager.

    """
    if value.strip() != LAYOUT:
        raise CorruptMetadataError(f"the layout of the cluster is {value!r}; only {LAYOUT!r} is known")


def _parse_binary(body: bytes) -> pb.LedgerMetadataFormat:
    prefix = _VARINT.match(body)
    if prefix is None or decode_varint(prefix[0]) != len(body) - prefix.end():
        raise ValueError(f"{len(body)} bytes do not fit the length they announce")
    message = pb.LedgerMetadataFormat()
    message.ParseFromString(body[prefix.end() :])
    return message


def _parse_text(body: bytes) -> pb.LedgerMetadataFormat:
    message = pb.LedgerMetadataFormat()
    text_format.Parse(body.decode(), message, allow_unknown_field=True)
    return message


def _from_message(message: pb.LedgerMetadataFormat) -> LedgerMetadata:
    ack_quorum = message.ackQuorumSize if message.HasField("ackQuorumSize") else message.quorumSize
    quorum = QuorumConfig(message.ensembleSize, message.quorumSize, ack_quorum)
    segments = tuple(Segment(s.firstEntryId, tuple(s.ensembleMember)) for s in message.segment)
    firsts = [segment.first_entry_id for segment in segments]
    if firsts[:1] != [0] or any(later <= earlier for earlier, later in pairwise(firsts)):
        raise ValueError(f"its segments start at {firsts}, which is not 0 and then ascending")
    if any(len(segment.bookies) != quorum.ensemble_size for segment in segments):
        raise ValueError(f"a segment does not name {quorum.ensemble_size} bookies")
    closed = message.state == pb.LedgerMetadataFormat.CLOSED
    return LedgerMetadata(
        quorum=quorum,
        state=LedgerState(message.state),
        segments=segments,
        digest_type=DigestType(message.digestType),
        password=message.password,
        last_entry_id=message.lastEntryId if closed and message.HasField("lastEntryId") else NO_ENTRY,
        length=message.length if closed else 0,
        created_ms=message.ctime,
        custom={entry.key: entry.value for entry in message.customMetadata},
        token=message.cToken,
    )
