"""Messages of `watch.proto` as what the feed and the clients use; the only place that knows their generated code."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rsm_spark.errors import InvalidCommandError
from rsm_spark.runtime.change_filter import TableChange
from rsm_spark.transport import watch_pb2
from rsm_spark.transport.parsing import parsed

WATCH_SERVICE = "rsm.watch.v1.Watches"
WATCH_METHOD = f"/{WATCH_SERVICE}/Watch"


class WatchRequest(msgspec.Struct, frozen=True):
    """Request of a client to watch a table; see `watch.proto`."""

    log: str
    table: str
    start: bytes = b""
    end: bytes | None = None
    from_revision: int = 0
    progress_ms: int = 0
    types: tuple[int, ...] = ()
    old_rows: bool = False


class ReceivedChanges(msgspec.Struct, frozen=True):
    """Changes that a replica has sent.

    Attributes:
        changes: Ascending by revision.
        up_to: There are no others that count by revisions up to this one, inclusive.
        has_old_rows: The changes say what rows were before.

    """

    changes: list[TableChange]
    up_to: int
    has_old_rows: bool = False


def encode_watch(request: WatchRequest) -> bytes:
    """Return a client's request."""
    return watch_pb2.WatchRequest(**msgspec.structs.asdict(request)).SerializeToString()


def decode_watch(text: bytes) -> WatchRequest:
    """Read a client's request.

    Raises:
        InvalidCommandError: It is none.

    """
    message = parsed(watch_pb2.WatchRequest, text, InvalidCommandError)
    end = message.end if message.HasField("end") else None
    types = tuple(message.types)
    return WatchRequest(
        message.log,
        message.table,
        message.start,
        end,
        message.from_revision,
        message.progress_ms,
        types,
        message.old_rows,
    )


def encode_changes(changes: Sequence[TableChange], up_to: int, *, old_rows: bool = False) -> bytes:
    """Return a replica's message, on wish with what rows were before."""
    olds = changes if old_rows else ()
    return watch_pb2.Changes(
        revisions=[change.revision for change in changes],
        types=[change.type for change in changes],
        keys=[change.key for change in changes],
        rows=[change.row or b"" for change in changes],
        logged_ms=[change.logged_ms for change in changes],
        up_to=up_to,
        old_rows=[change.old_row or b"" for change in olds],
        old_revisions=[change.old_revision for change in olds],
        mod_revisions=[change.mod_revision for change in changes],
    ).SerializeToString()


def decode_changes(text: bytes) -> ReceivedChanges:
    """Read a replica's message.

    Raises:
        ValueError: It is none.

    """
    message = parsed(watch_pb2.Changes, text, ValueError)
    columns = (message.revisions, message.types, message.keys, message.rows, message.logged_ms)
    changes = [
        TableChange(revision, kind, key, row or None, logged_ms)
        for revision, kind, key, row, logged_ms in zip(*columns, strict=True)
    ]
    if message.mod_revisions:
        counted = zip(changes, message.mod_revisions, strict=True)
        changes = [change._replace(mod_revision=mod_revision) for change, mod_revision in counted]
    if not message.old_revisions:
        return ReceivedChanges(changes, message.up_to)
    olds = zip(changes, message.old_rows, message.old_revisions, strict=True)
    changes = [change._replace(old_row=row or None, old_revision=revision) for change, row, revision in olds]
    return ReceivedChanges(changes, message.up_to, has_old_rows=True)
