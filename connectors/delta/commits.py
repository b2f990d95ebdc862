"""Commit to a Delta table until it is done: others may commit meanwhile, and stores fail now and then."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from deltalake.exceptions import CommitFailedError, DeltaError

from connectors.error_text import spoken_error, store_complaint
from connectors.errors import DeltaSinkError, SinkConflictError

_LOGGER = logging.getLogger(__name__)
_T = TypeVar("_T")
_CONFLICT_WAIT_S_MAX = 60.0
_FAILURES_MAX = 5


def persisted(
    attempt: Callable[[], _T],
    *,
    place: str,
    what: str,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> _T:
    """Try until it is done: conflicts for `_CONFLICT_WAIT_S_MAX`, failures of the store a few times.

    Args:
        attempt: Loads the table, decides, and commits: one that was done without our knowing of it is found done.
        place: Of the table, for errors.
        what: Is committed, for errors.
        clock: Monotonic seconds.
        sleep: Waits so many seconds.

    Raises:
        SinkConflictError: Other writers kept committing until the time was up.
        DeltaSinkError: The store fails again and again.

    """
    deadline = clock() + _CONFLICT_WAIT_S_MAX
    failures, delay_s = 0, 0.05
    while True:
        try:
            return attempt()
        except CommitFailedError as error:
            if clock() >= deadline:
                raise SinkConflictError(
                    f"{place}: {what} could not be committed for {_CONFLICT_WAIT_S_MAX:.0f} s: others kept "
                    f"committing to the table ({error})"
                ) from error
            _LOGGER.info("another writer committed first, deciding again", extra={"place": place})
        except (DeltaError, OSError) as error:
            failures += 1
            said = spoken_error(error)
            if failures >= _FAILURES_MAX:
                told = f"{place}: {what} could not be committed, {failures} attempts failed; the last one with: {said}"
                # What a store's library says may repeat credentials: no trace may show it.
                raise DeltaSinkError(told) from (None if store_complaint(error) else error)
            _LOGGER.warning("committing to %s failed, trying again: %s", place, said, extra={"place": place})
        sleep(delay_s)
        delay_s = min(2 * delay_s, 2.0)
