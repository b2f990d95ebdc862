"""Metrics of a process for a collector: what `/metrics` says, handed over each so many seconds.

The event loop pays what a look of Prometheus costs; the page is read, encoded and sent by the thread of the exporter.
"""

from __future__ import annotations

import asyncio
import inspect
import logging

from ledger.http.routes import Page, ProbePage
from ledger.telemetry.start import metrics_period_s, tell_metrics

_LOGGER = logging.getLogger(__name__)
# Of tasks the event loop itself keeps no more than a weak reference.
_pushes: set[asyncio.Task[None]] = set()


def push_metrics(page: Page) -> asyncio.Task[None] | None:
    """Tell a page from now on until the task is cancelled; None = this process tells no metrics.

    Args:
        page: Of metrics.

    """
    every_s = metrics_period_s()
    if not every_s:
        return None
    task = asyncio.get_running_loop().create_task(_push(page, every_s))
    _pushes.add(task)
    task.add_done_callback(_pushes.discard)
    return task


async def _push(page: Page, every_s: float) -> None:
    has_failed = False
    while True:
        await asyncio.sleep(every_s)
        try:
            said = page()
            found = await said if inspect.isawaitable(said) else said
            assert isinstance(found, ProbePage)
            tell_metrics(found.body)
        except Exception:
            if not has_failed:
                _LOGGER.exception("metrics of this process cannot be told a collector; the next ones are tried")
            has_failed = True
        else:
            has_failed = False
