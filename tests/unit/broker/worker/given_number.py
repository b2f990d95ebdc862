"""What functions are given in a test: a number, and a wait that ends when the run is to end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from broker.worker.context import TaskContext

VARIABLE = "GIVEN_NUMBER"


class BrokenOffError(Exception):
    """As a library raises it that knows nothing of tasks."""


@contextmanager
def given(context: TaskContext) -> Iterator[dict[str, Any]]:
    def wait() -> None:
        context.progress(0.5, "waits")
        assert context.cancelled.wait(60)
        raise BrokenOffError

    yield {"number": int(os.environ[VARIABLE]), "wait": wait}
