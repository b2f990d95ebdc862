"""Values of BookKeeper's ZooKeeper nodes: ledger metadata, cookies, bookie registrations, the layout.

Ledger metadata come in format 3 (binary protobuf, what BookKeeper writes since 4.9), 2 (text protobuf) and 1 (lines,
before 4.2, without digest and password). New ledgers get 3; a ledger keeps the format that it has.
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
from ledger.wire.paths import Layout
from ledger.wire.proto import data_formats_pb2 as pb
from ledger.wire.varint import decode_varint, encode_varint

LAYOUT: Final = b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"
"""Value of the layout node of a new cluster: format 2, the manager that keeps ledgers in a tree, its version."""

METADATA_BYTES_MAX: Final = 1 << 20
"""Largest value of a ledger's node, ZooKeeper's own default limit for any."""

_LAYOUTS: Final = {
    b"org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1": Layout.HIERARCHICAL,
    b"org.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory:1": Layout.LONG_HIERARCHICAL,
}

_PREFIX: Final = b"BookieMetadataFormatVersion\t"
_COOKIE_VERSION: Final = b"5\n"
_VARINT: Final = re.compile(rb"[\x80-\xff]{0,9}[\x00-\x7f]")
_BOOKIE_ID: Final = re.compile(r"[^\s/\x00-\x1f\x7f]+")
_HOLDER_KEY: Final = "rsm.holder"
_LINES_CLOSED: Final = "CLOSED"
_LINES_IN_RECOVERY: Final = -102
_PORT_MAX: Final = 65535
_INT64_MAX: Final = (1 << 63) - 1


class Cookie(msgspec.Struct, frozen=True):
    """Identity of a bookie's disks, kept in ZooKeeper and in every directory; any difference refuses a start.

    Attributes:
        bookie_id: "host:port", or a name of its own.
        journal_dirs: As configured; several are separated by commas.
        ledger_dirs: Absolute paths.
        instance_id: uuid of the cluster.

    """

    bookie_id: str
    journal_dirs: str
    ledger_dirs: tuple[str, ...]
    instance_id: str | None


def encode_metadata(metadata: LedgerMetadata) -> bytes:
    """Return the value of a ledger's node, in the format that the metadata name."""
    version = metadata.format_version
    body = _to_lines(metadata) if version == 1 else _to_message(metadata, version)
    return b"".join((_PREFIX, b"%d\n" % version, body))


def decode_metadata(value: bytes, *, ledger_id: int | None = None) -> LedgerMetadata:
    """Read the value of a ledger's node.

    Raises:
        CorruptMetadataError: It is in a format that this version does not read, or is damaged.

    """
    where = f"the metadata of ledger {ledger_id}" if ledger_id is not None else "ledger metadata"
    if len(value) > METADATA_BYTES_MAX:
        raise CorruptMetadataError(
            f"{where} are {len(value)} bytes long, more than {METADATA_BYTES_MAX}", ledger_id=ledger_id
        )
    if not value.startswith(_PREFIX):
        raise CorruptMetadataError(f"{where} begins with {value[:16]!r}, no format version", ledger_id=ledger_id)
    version, _, body = value[len(_PREFIX) :].partition(b"\n")
    if version not in (b"1", b"2", b"3"):
        raise CorruptMetadataError(f"{where} is in format {version[:16]!r}; 1, 2 and 3 are known", ledger_id=ledger_id)
    try:
        if version == b"1":
            return _from_lines(body.decode())
        return _from_message(_parse_binary(body) if version == b"3" else _parse_text(body), int(version))
    except (DecodeError, ValueError, UsageError, text_format.ParseError, RecursionError) as error:
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
        bookie_id, journal_dirs = _text(message.bookieHost), _text(message.journalDir)
        instance_id = _text(message.instanceId) if message.HasField("instanceId") else None
        count, *ledger_dirs = _text(message.ledgerDirs).split("\t")
    except (text_format.ParseError, ValueError, RecursionError) as error:
        raise CorruptMetadataError(f"a cookie cannot be read: {error}") from error
    if count != str(len(ledger_dirs)):
        raise CorruptMetadataError(f"a cookie announces {count} ledger directories and names {len(ledger_dirs)}")
    return Cookie(bookie_id, journal_dirs, tuple(ledger_dirs), instance_id)


def encode_bookie_service_info(host: str, port: int, holder: str = "") -> bytes:
    """Return the value of a bookie's registration: where its protocol endpoint listens.

    Args:
        host: Of the endpoint.
        port: Of the endpoint.
        holder: Mark of the disks that the process holds; "" = it says none.

    """
    message = pb.BookieServiceInfoFormat()
    message.endpoints.add(id="bookie", port=port, host=host, protocol="bookie-rpc")
    if holder:
        message.properties.add(key=_HOLDER_KEY, value=holder)
    return message.SerializeToString()


def decode_bookie_holder(value: bytes) -> str:
    """Return the mark of the disks that a registered process holds; "" if it says none.

    Raises:
        CorruptMetadataError: The registration is damaged.

    """
    message = pb.BookieServiceInfoFormat()
    try:
        message.ParseFromString(value)
        marks = [_text(entry.value) for entry in message.properties if entry.key == _HOLDER_KEY]
    except (DecodeError, ValueError) as error:
        raise CorruptMetadataError(f"a bookie's registration cannot be read: {error}") from error
    return marks[0] if marks else ""


def decode_bookie_service_info(value: bytes) -> tuple[str, int] | None:
    """Return (host, port) of a bookie's protocol endpoint; None if the registration names none (old bookies).

    Raises:
        CorruptMetadataError: It is damaged.

    """
    message = pb.BookieServiceInfoFormat()
    try:
        message.ParseFromString(value)
        addresses = [(_text(e.host), e.port) for e in message.endpoints if e.protocol == "bookie-rpc"]
    except (DecodeError, ValueError) as error:
        raise CorruptMetadataError(f"a bookie's registration cannot be read: {error}") from error
    for host, port in addresses[:1]:
        if not host or not 0 < port <= _PORT_MAX:
            raise CorruptMetadataError(f"a bookie is registered at {host!r} port {port}, which is no address")
        return host, port
    return None


def decode_layout(value: bytes) -> Layout:
    """Read the layout node, which says how the cluster keeps its ledgers.

    Raises:
        CorruptMetadataError: It keeps them in a way that this version does not know, or the node is damaged.

    """
    version, _, manager = value.strip().partition(b"\n")
    layout = _LAYOUTS.get(manager) if version == b"2" else None
    if layout is None:
        known = ", ".join(name.decode() for name in _LAYOUTS)
        raise CorruptMetadataError(
            f"the layout node of the cluster holds {value[:200]!r}; known are format 2 and {known}"
        )
    return layout


def _text(value: str | bytes) -> str:
    """Return a string of a message; protobuf hands out those that are no UTF-8 as bytes, whatever their type says.

    Raises:
        ValueError: It is one of those.

    """
    if isinstance(value, bytes):
        raise ValueError(f"{value[:80]!r} is no text")  # noqa: TRY004 - the data are wrong, not the call
    return value


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


def _to_message(metadata: LedgerMetadata, version: int) -> bytes:
    message = pb.LedgerMetadataFormat(
        quorumSize=metadata.quorum.write_quorum,
        ensembleSize=metadata.quorum.ensemble_size,
        ackQuorumSize=metadata.quorum.ack_quorum,
        length=metadata.length,
        lastEntryId=metadata.last_entry_id,
        state=metadata.state,  # type: ignore[arg-type]
        digestType=metadata.digest_type,  # type: ignore[arg-type]
        password=metadata.password,
    )
    if metadata.created_ms:
        message.ctime = metadata.created_ms
    for segment in metadata.segments:
        message.segment.add(ensembleMember=segment.bookies, firstEntryId=segment.first_entry_id)
    for key in sorted(metadata.custom):
        message.customMetadata.add(key=key, value=metadata.custom[key])
    if version == 2:
        return text_format.MessageToString(message).encode()
    message.cToken = metadata.token
    body = message.SerializeToString()
    return encode_varint(len(body)) + body


def _from_message(message: pb.LedgerMetadataFormat, version: int) -> LedgerMetadata:
    ack_quorum = message.ackQuorumSize if message.HasField("ackQuorumSize") else message.quorumSize
    quorum = QuorumConfig(message.ensembleSize, message.quorumSize, ack_quorum)
    segments = tuple(Segment(s.firstEntryId, tuple(map(_text, s.ensembleMember))) for s in message.segment)
    closed = message.state == pb.LedgerMetadataFormat.CLOSED
    if closed and not message.HasField("lastEntryId"):
        raise ValueError("it is CLOSED without a last entry")
    return _checked(
        LedgerMetadata(
            quorum=quorum,
            state=LedgerState(message.state),
            segments=segments,
            digest_type=DigestType(message.digestType),
            password=message.password,
            last_entry_id=message.lastEntryId if closed else NO_ENTRY,
            length=message.length if closed else 0,
            created_ms=message.ctime,
            custom={_text(entry.key): entry.value for entry in message.customMetadata},
            token=message.cToken,
            format_version=version,
        )
    )


def _to_lines(metadata: LedgerMetadata) -> bytes:
    lines = [str(metadata.quorum.write_quorum), str(metadata.quorum.ensemble_size), str(metadata.length)]
    lines += ["\t".join((str(segment.first_entry_id), *segment.bookies)) for segment in metadata.segments]
    if metadata.state == LedgerState.OPEN:
        return "".join(f"{line}\n" for line in lines).encode()
    last_entry_id = metadata.last_entry_id if metadata.is_closed else _LINES_IN_RECOVERY
    return "\n".join((*lines, f"{last_entry_id}\t{_LINES_CLOSED}")).encode()


def _from_lines(text: str) -> LedgerMetadata:
    """Read format 1: write quorum, ensemble size, length, segments, and the end once there is one."""
    write_quorum, ensemble_size, length, *rest = text.removesuffix("\n").split("\n")
    state = LedgerState.OPEN
    last_entry_id = NO_ENTRY
    segments: list[Segment] = []
    for line in rest:
        first, *names = line.split("\t")
        if state != LedgerState.OPEN:
            raise ValueError(f"{line[:80]!r} follows its end")
        if names != [_LINES_CLOSED]:
            segments.append(Segment(int(first), tuple(names)))
        elif int(first) == _LINES_IN_RECOVERY:
            state = LedgerState.IN_RECOVERY
        else:
            state, last_entry_id = LedgerState.CLOSED, int(first)
    return _checked(
        LedgerMetadata(
            quorum=QuorumConfig(int(ensemble_size), int(write_quorum), int(write_quorum)),
            state=state,
            segments=tuple(segments),
            digest_type=DigestType.CRC32,
            password=b"",
            last_entry_id=last_entry_id,
            length=int(length) if state == LedgerState.CLOSED else 0,
            format_version=1,
        )
    )


def _checked(metadata: LedgerMetadata) -> LedgerMetadata:
    """Return the metadata if they are ones that a BookKeeper client may have written.

    Raises:
        ValueError: They are not.

    """
    firsts = [segment.first_entry_id for segment in metadata.segments]
    if firsts[:1] != [0] or any(later <= earlier for earlier, later in pairwise(firsts)):
        raise ValueError(f"its segments start at {firsts[:20]}, which is not 0 and then ascending")
    size = metadata.quorum.ensemble_size
    for segment in metadata.segments:
        bookies = segment.bookies
        if len(bookies) != size:
            raise ValueError(f"the segment at entry {segment.first_entry_id} names {len(bookies)} bookies, not {size}")
        if len(dict.fromkeys(bookies)) != size:
            raise ValueError(f"the segment at entry {segment.first_entry_id} names a bookie twice: {bookies}")
        for bookie_id in bookies:
            if not _BOOKIE_ID.fullmatch(bookie_id):
                raise ValueError(f"the segment at entry {segment.first_entry_id} names {bookie_id[:80]!r}, no bookie")
    if (
        metadata.last_entry_id < NO_ENTRY
        or metadata.length < 0
        or max(firsts[-1], metadata.last_entry_id, metadata.length) > _INT64_MAX
    ):
        raise ValueError(f"its numbers are out of range: last entry {metadata.last_entry_id}, length {metadata.length}")
    return metadata
