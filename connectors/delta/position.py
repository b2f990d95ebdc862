"""Position of a table in its log, as its commits say it."""

from __future__ import annotations

from typing import Protocol, TypeVar

import msgspec

from connectors.errors import ForeignTableError
from ledger.decoding import json_decoder

POSITION_KEY = "rsm_position"
"""Key of the position in the commit metadata of each commit of ours."""

RENAMED_KEY = "rsm_renamed"
"""Key in the metadata of a commit that wrote all rows anew under other names of columns, and changed none."""

POSITION_FORMAT = 1


class PlacedPosition(Protocol):
    """Position of a table that is made of a log's records, in any form that commits say it in."""

    @property
    def log(self) -> str: ...
    @property
    def revision(self) -> int: ...
    @property
    def ledger(self) -> int: ...
    @property
    def entry(self) -> int: ...
    @property
    def prefix_hash(self) -> str: ...
    @property
    def format(self) -> int: ...


_Position = TypeVar("_Position", bound=PlacedPosition)


class TablePosition(msgspec.Struct, frozen=True):
    """State of a follower table.

    Attributes:
        log: Name of the log.
        log_id: Its uuid, 32 hex digits.
        table: Table of the machine that is followed.
        revision: Last record in the table; also the Delta transaction's version.
        ledger: Ledger of that record's entry; -1 before the first.
        entry: That entry; -1 before the first.
        prefix_hash: SHA-256 of that entry, hex: names the history up to it.
        digest: Digest over the table's rows as `rsm_spark.core.digest` defines it, 32 hex digits.
        row_count: Rows in the table.
        format: Of this text.

    """

    log: str
    log_id: str
    table: str
    revision: int
    ledger: int
    entry: int
    prefix_hash: str
    digest: str
    row_count: int
    format: int = POSITION_FORMAT


def app_id(log: str, log_id: str, table: str) -> str:
    """Return the application id of the Delta transactions: one per log and table, the same for ever."""
    return f"rsm:{log}:{log_id}:{table}"


def encode_position(position: PlacedPosition) -> str:
    """Return the text that is kept in the commit metadata."""
    return msgspec.json.encode(position).decode()


def decode_position(text: str, *, place: str, kind: type[_Position]) -> _Position:
    """Read a position of a kind back.

    Raises:
        ForeignTableError: The text is no position, or of a later format.

    """
    try:
        position = json_decoder(kind).decode(text)
    except msgspec.MsgspecError as error:
        raise ForeignTableError(f"{place}: its last commit has no position of ours: {error}") from error
    if position.format != POSITION_FORMAT:
        raise ForeignTableError(
            f"{place}: its position has format {position.format}, this version reads {POSITION_FORMAT}: upgrade"
        )
    return position
