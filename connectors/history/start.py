"""Start of a history, new or continued: its tables name the next record, and its log must still have that."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from connectors.delta.begin import check_history, described, first_revision, looked_at
from connectors.errors import ForeignTableError
from connectors.history.columns import HISTORY_TABLES
from connectors.history.layout import HistoryLayout, layout_of
from connectors.history.settings import HistorySettings
from connectors.history.tables import HistoryTables


class HistoryStart(NamedTuple):
    """Tables and first record with which a run of the stream begins.

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
    with looked_at(settings) as look:
        view = look.look()
        tables = HistoryTables(
            settings.lake, log=settings.log, log_id=look.log_id.hex(), storage_options=settings.storage_options
        )
        position = tables.position()
        if position is None:
            revision = first_revision(view, settings.log, "A history", begins_late=settings.begins_late)
        else:
            revision = position.revision + 1
            if revision > view.end.revision:
                raise ForeignTableError(
                    f"{settings.lake}: the history ends with record {position.revision}, log {settings.log} with "
                    f"record {view.end.revision - 1}: it is of another cluster, or of a log that was restored"
                )
            check_history(look, view, position, settings.lake)
        machine, _ = described(look, should_stop, revision)
    layout = layout_of(machine, payloads=settings.payloads, log=settings.log)
    if position is None:
        tables.create(revision - 1)
    for name in HISTORY_TABLES:
        tables.open(name)
    return HistoryStart(tables, revision, layout)
