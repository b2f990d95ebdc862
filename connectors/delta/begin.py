"""Checks of a log before tables go on from it: how its machine is described, and that it has their history."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from connectors.delta.position import PlacedPosition
from connectors.delta.settings import StreamSettings
from connectors.errors import DeltaSinkError, ForeignTableError
from connectors.source.access import DriverAccess
from connectors.source.bounds import Bound, BoundKind
from connectors.source.look import LogLook
from connectors.source.options import parse_options
from connectors.source.plan import LogView
from rsm_spark.core.machine import MachineDescription
from rsm_spark.core.partition_layout import partition_log

DESCRIPTION_WAIT_S_MAX = 60.0
_POLL_S = 0.5


def partitions_of(settings: StreamSettings) -> list[str]:
    """Return the names of the partitions that the log of a stream has now; [] = it is not partitioned."""
    access = DriverAccess(parse_options({**settings.source, "log": settings.log}, is_stream=True))
    try:
        layout = access.layout(settings.log)
    finally:
        access.close()
    return [] if layout is None else [partition_log(settings.log, number) for number in range(layout.partition_count)]


@contextmanager
def looked_at(settings: StreamSettings) -> Iterator[LogLook]:
    """Look at the log of a stream, from the driver."""
    access = DriverAccess(parse_options({**settings.source, "log": settings.log}, is_stream=True))
    try:
        yield LogLook(settings.log, access)
    finally:
        access.close()


def former_names(settings: StreamSettings) -> list[str]:
    """Return the names that the log of a stream had."""
    access = DriverAccess(parse_options({**settings.source, "log": settings.log}, is_stream=True))
    try:
        return access.former_names(settings.log)[1]
    finally:
        access.close()


def described(
    look: LogLook, should_stop: Callable[[], bool], from_revision: int | None = None
) -> tuple[MachineDescription, LogView]:
    """Return how the machine is described, and the log as it was then; wait for a log that has no record yet.

    Args:
        look: At the log.
        should_stop: Asked now and then.
        from_revision: Of the records from this one on; None = of the newest ones.

    Raises:
        DeltaSinkError: The description was trimmed away, or does not come.

    """
    deadline = time.monotonic() + DESCRIPTION_WAIT_S_MAX
    while True:
        view = look.look()
        ledger_id, known = view.end.ledger_id, view.first_revision
        if from_revision is not None:
            known = max(from_revision, known)
            bound = Bound(BoundKind.REVISION, revision=known)
            ledger_id = look.position_of(view, bound).ledger_id
        found = look.description_at(view, ledger_id)
        if found is not None:
            return found, view
        if view.first_revision > 1 and view.end.revision > known:
            raise DeltaSinkError(
                f"log {look.log}: the machine's description was trimmed with the records before "
                f"{view.first_revision}; the next ledger of the log will have it again"
            )
        if should_stop() or time.monotonic() > deadline:
            raise DeltaSinkError(
                f"log {look.log} holds no record that describes its machine: start the service that writes it, then "
                "this job"
            )
        time.sleep(_POLL_S)


def check_history(look: LogLook, view: LogView, position: PlacedPosition, place: str) -> None:
    """Check that the log has the entry at which a table stands, as the table knows it.

    What was trimmed cannot be compared: the source says whether records are missing.

    Raises:
        ForeignTableError: The table followed another history of the log.

    """
    if not position.prefix_hash or position.entry < 0 or view.index_of(position.ledger) < 0:
        return
    hash_there = hashlib.sha256(look.payload_at(position.ledger, position.entry)).hexdigest()
    if hash_there != position.prefix_hash:
        raise ForeignTableError(
            f"{place} followed another history of log {look.log}: at revision {position.revision} its prefix hash is "
            f"{position.prefix_hash}, the log's is {hash_there}"
        )


def first_revision(view: LogView, log: str, what: str, *, begins_late: bool) -> int:
    """Return the first record that a new table is made from, where a snapshot could not replace those before.

    Args:
        view: Of the log.
        log: Its name, for errors.
        what: Is begun, for errors.
        begins_late: Whether it may begin with what is left of a log that was trimmed.

    Raises:
        DeltaSinkError: Records are missing, and that is not wanted.

    """
    if view.first_revision > 1 and not begins_late:
        raise DeltaSinkError(
            f"log {log}: records 1 to {view.first_revision - 1} have been trimmed. {what} may begin with record "
            f"{view.first_revision} (--begin-late): what they said will not be in it"
        )
    return view.first_revision
