"""Workers whose leading broker is killed while they run tasks: real processes all."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from ledger.dev import DevCluster
from tests.integration.broker_processes import BrokerProcess, brokers
from tests.integration.worker_processes import TASKS, lines, started

_WAIT_S = 90.0


def until(condition: Callable[[], Any]) -> Any:
    """Wait until something is so; whoever cannot be asked is asked again."""
    deadline_s = time.monotonic() + _WAIT_S
    while True:
        try:
            if result := condition():
                return result
        except httpx.TransportError:
            pass
        assert time.monotonic() < deadline_s, "it does not come to pass"
        time.sleep(0.05)


def leader(processes: list[BrokerProcess], client: httpx.Client) -> BrokerProcess:
    """Return who leads, as soon as somebody does."""
    return until(
        lambda: next(
            (one for one in processes if client.get(f"{one.url}/api/v1/status").json().get("role") == "leader"), None
        )
    )


def submitted(client: httpx.Client, broker: BrokerProcess, *tasks: dict[str, Any]) -> list[int]:
    answer = until(
        lambda: (said := client.post(f"{broker.url}/api/v1/tasks/batch", json={"tasks": tasks})).is_success and said
    )
    task_ids: list[int] = answer.json()["task_ids"]
    return task_ids


@pytest.mark.slow
def test_runs_outlive_the_leader_and_no_at_most_once_task_runs_twice(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    options = ("--log", unique_name, "--metadata-uri", cluster.metadata_uri, "--bookies", "3/3/2")
    with brokers(tmp_path, "a", "b", options=options) as processes, httpx.Client(timeout=60) as client:
        first = leader(processes, client)
        (other,) = [one for one in processes if one is not first]
        given = ("--tasks", TASKS, "--threads", "4", "--executor", "process")
        found = ("--metadata-uri", cluster.metadata_uri, "--log", unique_name)
        named = ("--brokers", ",".join(str(one.ready["address"]) for one in processes))
        with started(tmp_path, "found", *given, *found), started(tmp_path, "named", *given, *named):
            files = [tmp_path / f"file{number}" for number in range(12)]
            tasks = [{"type": "wait", "payload": str(file), "at_most_once": True} for file in files]
            task_ids = submitted(client, first, *tasks)
            until(lambda: sum(bool(lines(file)) for file in files) == 8)  # As many as the two workers run at once.
            first.kill()
            assert leader([other], client) is other
            for file in files:
                file.with_suffix(".go").touch()

            def is_over(task_id: int) -> bool:
                task = client.get(f"{other.url}/api/v1/tasks/{task_id}").json()
                assert task["status"] in {"waiting", "running", "finished"}, task
                return bool(task["status"] == "finished")

            for task_id in task_ids:
                until(lambda task_id=task_id: is_over(task_id))
            assert [len(lines(file)) for file in files] == [1] * len(files)
