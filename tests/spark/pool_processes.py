"""A pool of workers as a child process: `jobs/worker_pool.py`, and what its tasks have noted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyspark

ROOT = Path(__file__).resolve().parents[2]
JOB = ROOT / "jobs" / "worker_pool.py"
TASKS = Path(__file__).with_name("pool_tasks.py")
_SMALL = (
    "--conf spark.ui.enabled=false --conf spark.driver.memory=512m "
    "--conf 'spark.driver.extraJavaOptions=-XX:+UseSerialGC -XX:TieredStopAtLevel=1' "
    "--conf 'spark.executor.extraJavaOptions=-XX:+UseSerialGC -XX:TieredStopAtLevel=1'"
)


class PoolProcess:
    """One `python jobs/worker_pool.py`.

    Attributes:
        lines: The JSON lines that it has written.

    """

    def __init__(self, folder: Path, master: str, *options: str, conf: str = "") -> None:
        self.lines: list[dict[str, Any]] = []
        self._errors = folder / "pool.log"
        environment = {
            **os.environ,
            "PYSPARK_SUBMIT_ARGS": f"--master {master} {_SMALL} {conf} pyspark-shell",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(folder / "spark"),
            "SPARK_HOME": str(spark_home(folder / "spark-home")),
            "PYSPARK_PYTHON": sys.executable,
        }
        with self._errors.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(JOB), *options],
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=folder,
                env=environment,
                text=True,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                self.lines.append(json.loads(line))

    @property
    def shape(self) -> dict[str, Any]:
        """The newest line."""
        return self.lines[-1] if self.lines else {}

    def errors(self) -> str:
        return f"{self.lines[-3:]} {self._errors.read_text()[-6000:]}"

    def until(self, condition: Callable[[], Any], timeout_s: float = 240) -> Any:
        """Wait until something is so."""
        deadline_s = time.monotonic() + timeout_s
        while not (result := condition()):
            assert self.process.poll() is None, f"the pool has ended: {self.errors()}"
            assert time.monotonic() < deadline_s, f"it does not come to pass: {self.errors()}"
            time.sleep(0.05)
        return result

    def wait_serving(self, count: int) -> None:
        self.until(lambda: self.shape.get("serving") == count)

    def wait_ended(self, timeout_s: float = 240) -> int:
        code = self.process.wait(timeout_s)
        self._reader.join(60)
        return code

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the driver, and with it all that it has started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)
        self._reader.join(60)


def spark_home(folder: Path) -> Path:
    """Return an installation of links: executors of a local cluster write into the folder of Spark's own."""
    if not folder.exists():
        folder.mkdir()
        for name in ("bin", "sbin", "jars"):
            (folder / name).symlink_to(Path(pyspark.__path__[0]) / name)
    return folder


@contextmanager
def pool(folder: Path, master: str, *options: str, conf: str = "") -> Iterator[PoolProcess]:
    """Run a pool; it is killed at the end if it has not ended before."""
    process = PoolProcess(folder, master, *options, conf=conf)
    try:
        yield process
    finally:
        process.kill()


def descendants(pid: int) -> dict[int, str]:
    """Return the processes below one, with their command lines."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
    found: dict[int, str] = {}
    below = {pid}
    while below:
        below = {child for child, parent in parents.items() if parent in below}
        for child in below:
            try:
                found[child] = (Path("/proc") / str(child) / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
    return found


def executors(process: PoolProcess) -> list[int]:
    """Return the process ids of the executors of a local cluster."""
    below = descendants(process.process.pid)
    return sorted(
        pid for pid, command in below.items() if "CoarseGrainedExecutorBackend" in command and "java" in command
    )


class Runs:
    """What runs have noted.

    Attributes:
        begun: Runs that began, by task.
        ended: Runs that came to their end, by task.
        moments: (ns, +1 or -1, task) of every run that began or ended, in the order of the machine's clock.

    """

    def __init__(self, folder: Path) -> None:
        self.begun: Counter[int] = Counter()
        self.ended: Counter[int] = Counter()
        self.moments: list[tuple[int, int, int]] = []
        for path in sorted(folder.glob("*.runs")):
            for line in path.read_text().splitlines():
                task_id, at_ns, what = line.split()
                (self.begun if what == "begin" else self.ended)[int(task_id)] += 1
                self.moments.append((int(at_ns), 1 if what == "begin" else -1, int(task_id)))
        self.moments.sort()

    def at_once_max(self, task_ids: Collection[int]) -> int:
        """Return how many of these tasks ran at once at most."""
        return max(accumulate(change for _, change, task_id in self.moments if task_id in task_ids))
