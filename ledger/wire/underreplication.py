"""Nodes of auto-recovery in the metadata store: paths and values, as BookKeeper's own auditor and workers know them.

    underreplication/LAYOUT                             text: type "BASIC", version 1
    underreplication/ledgers/hhhh/hhhh/hhhh/hhhh/urL…   a mark: this ledger lacks copies; text
    underreplication/locks/urL…                         who works on it; ephemeral, text
    underreplication/auditorelection                    text: the auditor's name
    underreplication/auditorelection/V_nnnnnnnnnn       a vote; ephemeral, sequential, text
    underreplication/disable                            its presence stops auditor and workers
    underreplication/lostBookieRecoveryDelay            seconds, as digits
    underreplication/checkallledgersctime               when all ledgers were last checked; binary
    underreplication/draining/<bookie id>               give away what this bookie holds; empty, ours
    underreplication/audits/audit, …/check              the auditor's last look at all ledgers; JSON, ours
    underreplication/audits/ask-audit, …/ask-check      somebody wants one now: its version counts; empty, ours

The four folders above a mark are the ledger's id in hexadecimal; `urL` is followed by its ten or more digits.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
from google.protobuf import text_format
from google.protobuf.message import DecodeError

from ledger.errors import CorruptMetadataError
from ledger.wire.paths import underreplication_path
from ledger.wire.proto import data_formats_pb2 as pb

LAYOUT: Final = b'type: "BASIC"\nversion: 1\n'

_MARK_NAME: Final = re.compile(r"urL([0-9]{10,19})")
_VOTE_NAME: Final = re.compile(r"V_([0-9]{10})")
_LEVEL_COUNT: Final = 4
_LEVEL_BITS: Final = 16


class Mark(msgspec.Struct, frozen=True):
    """A ledger is known to lack copies.

    Attributes:
        bookie_ids: Which bookies are gone, or lack entries; none if whoever marked it did not say.
        created_ms: Wall clock of the mark, or None.

    """

    bookie_ids: tuple[str, ...]
    created_ms: int | None = None


def mark_path(root: str, ledger_id: int | None = None) -> str:
    """Return the folder of all marks, or the mark of a ledger."""
    folder = f"{underreplication_path(root)}/ledgers"
    if ledger_id is None:
        return folder
    shifts = range((_LEVEL_COUNT - 1) * _LEVEL_BITS, -1, -_LEVEL_BITS)
    levels = "/".join(f"{ledger_id >> shift & 0xFFFF:04x}" for shift in shifts)
    return f"{folder}/{levels}/urL{ledger_id:010d}"


def lock_path(root: str, ledger_id: int | None = None) -> str:
    """Return the folder of all locks, or the lock of a ledger."""
    folder = f"{underreplication_path(root)}/locks"
    return folder if ledger_id is None else f"{folder}/urL{ledger_id:010d}"


def draining_path(root: str, bookie_id: str | None = None) -> str:
    """Return the folder of the orders to drain bookies, or the order for one bookie.

    BookKeeper's tools look into every folder that they know, and not into this one.
    """
    folder = f"{underreplication_path(root)}/draining"
    return folder if bookie_id is None else f"{folder}/{bookie_id}"


def audit_path(root: str, kind: str) -> str:
    """Return the node in which the auditor tells of its last look at all ledgers, of a kind."""
    return f"{underreplication_path(root)}/audits/{kind}"


def audit_request_path(root: str, kind: str) -> str:
    """Return the node that is written whenever somebody wants such a look now."""
    return f"{underreplication_path(root)}/audits/ask-{kind}"


def ledger_id_of_mark(name: str) -> int | None:
    """Return the ledger that a mark or a lock of this name is about; None if it is neither."""
    matched = _MARK_NAME.fullmatch(name)
    return int(matched[1]) if matched else None


def layout_path(root: str) -> str:
    """Return the node that names the layout of marks."""
    return f"{underreplication_path(root)}/LAYOUT"


def election_path(root: str) -> str:
    """Return the folder of the auditors' votes."""
    return f"{underreplication_path(root)}/auditorelection"


def vote_prefix(root: str) -> str:
    """Return what the path of a vote begins with; the store adds ten digits."""
    return f"{election_path(root)}/V_"


def vote_number(name: str) -> int | None:
    """Return the number of a vote; the lowest leads. None if the node is no vote."""
    matched = _VOTE_NAME.fullmatch(name)
    return int(matched[1]) if matched else None


def disable_path(root: str) -> str:
    """Return the node whose presence stops auto-recovery."""
    return f"{underreplication_path(root)}/disable"


def recovery_delay_path(root: str) -> str:
    """Return the node of the delay before a lost bookie's ledgers are marked."""
    return f"{underreplication_path(root)}/lostBookieRecoveryDelay"


def check_time_path(root: str) -> str:
    """Return the node that tells when all ledgers were last checked."""
    return f"{underreplication_path(root)}/checkallledgersctime"


def check_layout(value: bytes) -> None:
    """Refuse marks that are kept in another way than ours.

    Raises:
        CorruptMetadataError: The node cannot be read, or names another layout.

    """
    message = pb.LedgerRereplicationLayoutFormat()
    _parse_text(value, message, "the layout of under-replicated ledgers")
    if (message.type, message.version) != ("BASIC", 1):
        raise CorruptMetadataError(
            f"marks of under-replicated ledgers are kept as {message.type!r}, version {message.version}; "
            "'BASIC', version 1, is known"
        )


def encode_mark(mark: Mark) -> bytes:
    """Return the value of a mark."""
    message = pb.UnderreplicatedLedgerFormat(replica=mark.bookie_ids)
    if mark.created_ms is not None:
        message.ctime = mark.created_ms
    return text_format.MessageToString(message).encode()


def decode_mark(value: bytes, ledger_id: int) -> Mark:
    """Read a mark.

    Raises:
        CorruptMetadataError: It is damaged.

    """
    message = pb.UnderreplicatedLedgerFormat()
    _parse_text(value, message, f"the mark of under-replicated ledger {ledger_id}")
    return Mark(tuple(message.replica), message.ctime if message.HasField("ctime") else None)


def encode_lock(owner: str) -> bytes:
    """Return the value of a lock."""
    return text_format.MessageToString(pb.LockDataFormat(bookieId=owner)).encode()


def encode_vote(owner: str) -> bytes:
    """Return the value of a vote, and of the votes' folder when the vote has won."""
    return text_format.MessageToString(pb.AuditorVoteFormat(bookieId=owner)).encode()


def decode_owner(value: bytes) -> str | None:
    """Return whose lock or vote it is; None if it does not say. Both have the same form.

    Raises:
        CorruptMetadataError: It is damaged.

    """
    message = pb.LockDataFormat()
    _parse_text(value, message, "a lock or vote of auto-recovery")
    return message.bookieId if message.HasField("bookieId") else None


def encode_delay(delay_s: int) -> bytes:
    """Return the value of the node at `recovery_delay_path`."""
    return str(delay_s).encode()


def decode_delay(value: bytes) -> int:
    """Read the value of the node at `recovery_delay_path`, seconds.

    Raises:
        CorruptMetadataError: It is no number.

    """
    try:
        return int(value.decode())
    except ValueError as error:
        raise CorruptMetadataError(f"lostBookieRecoveryDelay is {value!r}, which is no number of seconds") from error


def encode_check_time(checked_ms: int) -> bytes:
    """Return the value of the node at `check_time_path`."""
    return pb.CheckAllLedgersFormat(checkAllLedgersCTime=checked_ms).SerializeToString()


def decode_check_time(value: bytes) -> int | None:
    """Read when all ledgers were last checked, wall clock in ms; None if it does not say.

    Raises:
        CorruptMetadataError: It is damaged.

    """
    message = pb.CheckAllLedgersFormat()
    try:
        message.ParseFromString(value)
    except DecodeError as error:
        raise CorruptMetadataError(f"the time of the last check of all ledgers cannot be read: {error}") from error
    return message.checkAllLedgersCTime if message.HasField("checkAllLedgersCTime") else None


def _parse_text(
    value: bytes,
    message: pb.LedgerRereplicationLayoutFormat | pb.UnderreplicatedLedgerFormat | pb.LockDataFormat,
    what: str,
) -> None:
    try:
        text_format.Parse(value.decode(), message, allow_unknown_field=True)
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise CorruptMetadataError(f"{what} cannot be read: {error}") from error
