"""Where a history begins or goes on: its tables say it, its log must still have what comes next."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import NamedTuple

from connectors.errors import DeltaSinkError, ForeignTableError
from connectors.history.columns import HISTORY_TABLES
from connectors.history.layout import HistoryLayout, layout_of
from connectors.history.settings import HistorySettings
from connectors.history.tables import HistoryPosition, HistoryTables
from connectors.spark.access import DriverAccess
from connectors.spark.bounds import Bound, BoundKind
from connectors.spark.look import LogLook
from connectors.spark.options import parse_options
from connectors.spark.plan import LogView
from rsm_spark.core.machine import MachineDescription

__all__ = ["HistoryStart", "open_history"]

_DESCRIPTION_WAIT_S_MAX = 60.0
_POLL_S = 0.5


class HistoryStart(NamedTuple):
    """What a run of the stream begins with.

    Attributes:
        tables: All there.
        revision: First record that is to be read.
        layout: Of the records there.

    """

    tables: HistoryTables
    revision: int
    layout: HistoryLayout


def open_history(settings: HistorySettings, should_stop: Callable[[], bool]) -> HistoryStart:
    """Return the tables, made if need be, and where they go on, after checking that the log is theirs.

    Raises:
        DeltaSinkError: The log is no broker's, is not described, or lacks records that the history needs.
        ForeignTableError: The tables are of another log, or of another history of it.

    """
    access = DriverAccess(parse_options({**settings.source, "log": settings.log}, is_stream=True))
    try:
        look = LogLook(settings.log, access)
        view = look.look()
        tables = HistoryTables(
            settings.lake, log=settings.log, log_id=look.log_id.hex(), storage_options=settings.storage_options
        )
        position = tables.position()
        if position is None:
            revision = _first_revision(settings, view)
        else:
            _check_history(settings, look, view, position)
            revision = position.revision + 1
        layout = layout_of(
            _described(settings, look, revision, should_stop), payloads=settings.payloads, log=settings.log
        )
        if position is None:
            tables.create(revision - 1)
        for name in HISTORY_TABLES:
            tables.open(name)
    finally:
        access.close()
    return HistoryStart(tables, revision, layout)


def _first_revision(settings: HistorySettings, view: LogView) -> int:
    if view.first_revision > 1 and not settings.begins_late:
        raise DeltaSinkError(
            f"log {settings.log}: records 1 to {view.first_revision - 1} have been trimmed. A history may begin with "
            f"record {view.first_revision} (--begin-late): of tasks that were submitted before it only what happened "
            "since will be known"
        )
    return view.first_revision


def _check_history(settings: HistorySettings, look: LogLook, view: LogView, position: HistoryPosition) -> None:
    if position.revision >= view.end.revision:
        raise ForeignTableError(
            f"{settings.lake}: the history ends with record {position.revision}, log {settings.log} with record "
            f"{view.end.revision - 1}: it is of another cluster, or of a log that was restored"
        )
    if position.entry < 0 or view.index_of(position.ledger) < 0:
        return  # Begun, or that entry was trimmed: the source says whether records are missing.
    found = hashlib.sha256(look.payload_at(position.ledger, position.entry)).hexdigest()
    if position.prefix_hash and found != position.prefix_hash:
        raise ForeignTableError(
            f"{settings.lake} has another history of log {settings.log}: at revision {position.revision} its prefix "
            f"hash is {position.prefix_hash}, the log's is {found}"
        )


def _described(
    settings: HistorySettings, look: LogLook, revision: int, should_stop: Callable[[], bool]
) -> MachineDescription:
    """Return the description of the records from a revision on; wait for a log's first one."""
    deadline = time.monotonic() + _DESCRIPTION_WAIT_S_MAX
    while True:
        view = look.look()
        bound = Bound(BoundKind.REVISION, revision=max(revision, view.first_revision))
        described = look.description_at(view, look.position_of(view, bound).ledger_id)
        if described is not None:
            return described
        if view.end.revision > revision:
            raise DeltaSinkError(
                f"log {settings.log}: the machine's description was trimmed with the records before "
                f"{view.first_revision}; the next ledger of the log will have it again"
            )
        if should_stop() or time.monotonic() > deadline:
            raise DeltaSinkError(
                f"log {settings.log} holds no record yet: start the broker that writes it, then this job"
            )
        time.sleep(_POLL_S)
