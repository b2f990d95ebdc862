"""Commit to a Delta table until it is done: others may commit meanwhile, and stores fail now and then."""

from __future__ import annotations

import logging
import re
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
# In what `deltalake` says of a table that it cannot write: it has no class for that, and calls it a failed commit.
_UNSUPPORTED = re.compile(r"unsupported table features[^:]*: (.*)", re.IGNORECASE)


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
        DeltaSinkError: The store fails again and again, or the table has features that cannot be written.

    """
    deadline = clock() + _CONFLICT_WAIT_S_MAX
    failures, delay_s = 0, 0.05
    while True:
        try:
            return attempt()
        except CommitFailedError as error:
            _check_features(place, error)
            if clock() >= deadline:
                raise SinkConflictError(
                    f"{place}: {what} could not be committed for {_CONFLICT_WAIT_S_MAX:.0f} s: others kept "
                    f"committing to the table ({error})"
                ) from error
            _LOGGER.info("another writer committed first, deciding again", extra={"place": place})
        except (DeltaError, OSError) as error:
            _check_features(place, error)
            failures += 1
            said = spoken_error(error)
            if failures >= _FAILURES_MAX:
                told = f"{place}: {what} could not be committed, {failures} attempts failed; the last one with: {said}"
                # What a store's library says may repeat credentials: no trace may show it.
                raise DeltaSinkError(told) from (None if store_complaint(error) else error)
            _LOGGER.warning("committing to %s failed, trying again: %s", place, said, extra={"place": place})
        sleep(delay_s)
        delay_s = min(2 * delay_s, 2.0)


def _check_features(place: str, error: Exception) -> None:
    """Refuse a table that was given features of Delta which `deltalake` cannot write: no attempt would help."""
    found = _UNSUPPORTED.search(str(error))
    if found is not None:
        raise DeltaSinkError(
            f"{place}: somebody has given this table features of Delta that followers cannot write, {found[1]}: drop "
            "them (ALTER TABLE … DROP FEATURE) where Delta lets you, or make the table anew. Deletion vectors may be "
            "on; liquid clustering, row tracking and the like may not"
        ) from error
