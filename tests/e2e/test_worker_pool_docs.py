"""What docs/worker-pools.md shows runs as it stands there, in a project that has folders of the names of ours."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from broker.client import BrokerClient, NewTask
from ledger.dev import DevCluster
from tests.integration.broker_processes import BrokerProcess, brokers
from tests.spark.pool_processes import descendants

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "worker-pools.md").read_text()
HANDLERS, STATEMENT, FUNCTION = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
SUBMITTED, PLAIN, DEPLOYED = (
    [shlex.split(line) for line in text.splitlines()] for text in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
)
DOCUMENTED_HTTP = "http://127.0.0.1:7364"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "handlers.py").write_text(HANDLERS)
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "__init__.py").write_text("raise RuntimeError('the jobs of somebody else')\n")
    return tmp_path


@pytest.fixture
def broker(cluster: DevCluster, unique_name: str, tmp_path: Path) -> Iterator[tuple[BrokerProcess, tuple[str, ...]]]:
    found = ("--log", unique_name, "--metadata-uri", cluster.metadata_uri)
    with brokers(tmp_path, "a", options=(*found, "--bookies", "3/3/2")) as (process,):
        yield process, found


@contextmanager
def running(folder: Path, command: list[str], **variables: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", **variables}
    with (folder / "job.log").open("ab") as errors:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)


def ours(command: list[str]) -> list[str]:
    return [str(ROOT / part) if part.startswith("jobs/") else part for part in command]


def until(condition: Callable[[], object], folder: Path) -> object:
    deadline_s = time.monotonic() + 300
    while not (found := condition()):
        assert time.monotonic() < deadline_s, (folder / "job.log").read_text()[-4000:]
        time.sleep(0.2)
    return found


def test_the_plain_command_runs_what_waits_and_ends(
    project: Path, broker: tuple[BrokerProcess, tuple[str, ...]]
) -> None:
    process, found = broker
    ((first, *rest),) = PLAIN
    (variable, master), (python, *command) = first.split("="), ours(rest)
    assert python == "python"
    with BrokerClient.connect([process.url], tenant="acme") as client:
        ids = client.submit_many(NewTask("resize", "xyz") for _ in range(20)).task_ids
        with running(project, [sys.executable, *command, *found], **{variable: master}) as job:
            said, _ = job.communicate(timeout=300)
        assert job.returncode == 0, (project / "job.log").read_text()[-4000:]
        assert json.loads(said.splitlines()[-1])["ended"] == 20
        assert {client.result(task_id) for task_id in ids} == {b"3 bytes for acme"}


def days_counted(folder: Path, client: BrokerClient, url: str) -> bytes:
    """Deploy the function and have it count, by the commands of the page."""
    flights = folder / "flights"
    flights.mkdir()
    parquet.write_table(pa.table({"day": [1, 1, 2]}), flights / "some.parquet")
    (folder / "totals.py").write_text(FUNCTION)
    for command in DEPLOYED:
        words = [str(flights) if word == "/lake/flights" else word for word in command[1:]]
        rsm = [sys.executable, "-m", "rsm_spark", *words, "--url", url]
        done = subprocess.run(rsm, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
    (task,) = client.tasks(type="spark_python")
    return client.result(task.task_id, timeout_s=300)


def test_the_submitted_command_serves_tasks_and_statements_until_its_driver_is_told_to_end(
    project: Path, broker: tuple[BrokerProcess, tuple[str, ...]]
) -> None:
    process, found = broker
    submit, *command = ours(SUBMITTED[0])
    place = [str(Path(sys.executable).with_name(submit)), "--master", "local[22]", "--conf", "spark.ui.enabled=false"]
    with BrokerClient.connect([process.url], tenant="acme") as client:
        task_id = client.submit("resize", "xy")
        with running(project, [*place, *command, *found, "--sql-threads", "2", "--python-threads", "1"]) as job:
            assert client.result(task_id, timeout_s=300) == b"2 bytes for acme"
            code = STATEMENT.replace(DOCUMENTED_HTTP, process.url)
            done = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
            )
            assert done.stdout == "[[0, 0], [1, 7], [2, 14]]\n", done.stderr
            assert days_counted(project, client, process.url) == b"2 days"
            (driver,) = [
                pid for pid, text in descendants(job.pid).items() if "worker_pool.py" in text and "java" not in text
            ]
            os.kill(driver, signal.SIGTERM)
            said, _ = job.communicate(timeout=120)
        assert job.returncode == 0, (project / "job.log").read_text()[-4000:]
        summary = json.loads([line for line in said.splitlines() if line.startswith("{")][-1])
        assert (summary["ok"], summary["lost"], summary["cancelled"]) == (True, 0, 0)
        assert client.workers()[0].status == "dead"
