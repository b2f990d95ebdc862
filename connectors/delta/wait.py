"""Wait until a follower table holds a revision: read in the lake what was just written to the service."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from connectors.delta.place import find_follower
from connectors.error_text import store_complaint
from connectors.errors import DeltaSinkError, FollowerLagError, ForeignTableError
from rsm_spark.object_stores.storage_options import remember_secrets

_RELOAD_S = 2.0
_POLL_S_MIN = 0.02
_POLL_S_MAX = 0.25


def wait_for(
    place: str,
    revision: int,
    timeout_s: float = 30.0,
    *,
    storage_options: Mapping[str, str] | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Return the revision that a follower table holds, once it is not below the one that is wanted.

    A table whose rows the newest records do not touch says so at most a position interval later (10 s by default).

    Args:
        place: Path or URI of the Delta table.
        revision: Of the record that must be in the table.
        timeout_s: Wait at most so long; 0 = look once.
        storage_options: For `deltalake`.
        clock: Monotonic seconds.
        sleep: Waits so many seconds.

    Raises:
        FollowerLagError: It does not hold that revision in time; the error names what it holds.
        ForeignTableError: The table at this place follows no log.
        DeltaSinkError: The store of the table refuses to show it.

    """
    deadline = clock() + timeout_s
    watch = _Watch(place, storage_options, clock)
    delay_s = _POLL_S_MIN
    while True:
        found = watch.revision()
        if found is not None and found >= revision:
            return found
        left_s = deadline - clock()
        if left_s <= 0:
            raise FollowerLagError(
                f"{place}: there is no table yet; {timeout_s:g} s were waited for revision {revision}: is "
                "jobs/materialize.py running, and does it write here?"
                if found is None
                else f"{place} holds revision {found}, {revision - found} records behind {revision}, after "
                f"{timeout_s:g} s: is jobs/materialize.py running, and does it keep up?",
                revision=found,
            )
        sleep(min(delay_s, left_s))
        delay_s = min(1.5 * delay_s, _POLL_S_MAX)


class _Watch:
    """Looks at a table again and again; only new commits are read, but every now and then all of it: it may be new."""

    def __init__(self, place: str, storage_options: Mapping[str, str] | None, clock: Callable[[], float]) -> None:
        self._place = place
        self._storage_options = dict(storage_options) if storage_options else None
        remember_secrets(storage_options)
        self._clock = clock
        self._handle: DeltaTable | None = None
        self._app_id = ""
        self._loaded_s = 0.0

    def revision(self) -> int | None:
        """Return the revision of the table's transaction; None if there is no table."""
        handle = self._handle
        if handle is not None and self._clock() - self._loaded_s < _RELOAD_S:
            try:
                handle.update_incremental()
                return handle.transaction_version(self._app_id)
            except (DeltaError, OSError):
                pass  # Loading says what is the matter.
        try:
            self._handle = DeltaTable(self._place, storage_options=self._storage_options)
        except TableNotFoundError:
            self._handle = None
            return None
        except (DeltaError, OSError) as error:
            complaint = store_complaint(error)
            if complaint is None:
                raise
            raise DeltaSinkError(f"{self._place}: the table cannot be read: {complaint}") from None
        self._app_id = find_follower(self._handle, self._place)
        self._loaded_s = self._clock()
        found = self._handle.transaction_version(self._app_id)
        if found is None:
            raise ForeignTableError(f"{self._place}: this Delta table follows no log: it has no position of ours")
        return found
