"""The tasks of the demonstration, for workers alone: who imports this registers them.

Workers import this module (`rsm worker run --tasks rsm_demo.airline_tasks`). Each run notes itself in the folder that
`RSM_DEMO_RUNS` names, so that somebody else can count what really ran.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

from broker.worker import TaskContext, task
from rsm_demo.airline_work import RUNS_VARIABLE, TASK_TYPE, AirlineWork, half_days

RUN_S = 0.04
"""Seconds that a run waits, as for a service elsewhere."""


@task(TASK_TYPE)
async def half_day(context: TaskContext, payload: bytes) -> bytes:
    """Answer flights and delay minutes of one piece of work."""
    folder = os.environ.get(RUNS_VARIABLE)
    if folder:
        with (Path(folder) / f"{os.getpid()}.runs").open("a") as runs:
            runs.write(f"{context.task_id}\n")
    await asyncio.sleep(RUN_S)
    return json.dumps(half_days()[AirlineWork(*json.loads(payload))]).encode()


if RUNS_VARIABLE in os.environ:
    half_days()  # A worker reads the flights before it asks for tasks, not within the first of them.
