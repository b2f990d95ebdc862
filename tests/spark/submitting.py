"""Workers that submit applications to Spark, for tests, and what they have started."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from broker.client import BrokerClient
from tests.integration.worker_processes import WorkerProcess, is_alive, started
from tests.spark.pool_processes import descendants

APPLICATIONS = Path(__file__).with_name("submitted_applications")
NAMES = ("counts.py", "fails.py", "works.py", "looks.py")
_UNTIL_S = 600.0
_STILL_S = 10.0
_SMALL = """\
spark.driver.memory 512m
spark.driver.extraJavaOptions -XX:+UseSerialGC -XX:TieredStopAtLevel=1
spark.sql.shuffle.partitions 3
"""


class Submitting:
    """A worker that submits, and its tenant.

    Args:
        client: Of the broker.
        worker: The process.

    """

    def __init__(self, client: BrokerClient, worker: WorkerProcess) -> None:
        self.client = client
        self.worker = worker

    def submit(self, name: str, *args: str, conf: dict[str, Any] | None = None, **options: Any) -> int:
        """Submit an application of the code pool."""
        payload = json.dumps({"args": list(args), "conf": conf or {}})
        options = {"max_attempts": 1, **options}
        return self.client.submit("spark_submit", payload, code="applications", mode=name, **options)

    def result(self, task_id: int) -> dict[str, Any]:
        """Wait for the result of a task."""
        return dict(json.loads(self.client.result(task_id, timeout_s=_UNTIL_S)))

    def until(self, condition: Callable[[], Any]) -> Any:
        """Wait until something is so."""
        deadline_s = time.monotonic() + _UNTIL_S
        while not (found := condition()):
            assert time.monotonic() < deadline_s, self.worker.errors()
            time.sleep(0.1)
        return found

    def until_ended(self, task_id: int) -> Any:
        """Wait until a task has ended, and return it."""
        self.until(lambda: self.client.get(task_id).has_ended)
        return self.client.get(task_id)

    def until_still(self, file: Path) -> None:
        """Wait until nobody has written to a file for a while: who writes there does so twenty times a second."""
        self.until(lambda: time.time() - file.stat().st_mtime > _STILL_S)

    def jvms(self) -> list[int]:
        """Return the JVMs below the worker."""
        return [pid for pid, words in descendants(self.worker.process.pid).items() if "java" in words.split(" ")[0]]


@contextmanager
def submitting(
    folder: Path, client: BrokerClient, master: str, *options: str, worker_id: str = "submits", more: str = ""
) -> Iterator[Submitting]:
    """Run a worker that submits to a master."""
    properties = folder / "spark.conf"
    properties.write_text(_SMALL + more)
    told = ("--submit-master", master, "--submit-properties", str(properties), *options)
    with started(folder, worker_id, *told) as worker:
        worker._read_ready()
        yield Submitting(client, worker)


def all_gone(pids: list[int]) -> bool:
    """Return whether none of these processes is there any more."""
    return not any(is_alive(pid) for pid in pids)
