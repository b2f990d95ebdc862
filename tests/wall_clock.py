"""A wall clock that tests set, so that what expires by it does so when the test says."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest


class SetClock:
    """Takes the place of the wall clock in every new object of a class that is given one as `wall_s`."""

    def __init__(self, patch: pytest.MonkeyPatch, user: type) -> None:
        self._ahead_s = 0.0
        defaults = vars(user)["__init__"].__kwdefaults__
        assert defaults["wall_s"] is time.time
        patch.setitem(defaults, "wall_s", lambda: time.time() + self._ahead_s)
        self.in_an_hour = datetime.fromtimestamp(time.time() + 3_600, UTC).isoformat()

    def pass_that_hour(self) -> None:
        self._ahead_s = 7_200.0
