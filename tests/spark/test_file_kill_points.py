"""Checkpoints in a file store: its leader, a bookie or Spark's driver is killed in the middle of an operation."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import StreamingQueryException

from tests.integration.file_stores import FileCaller
from tests.integration.store_processes import stores
from tests.spark import counting_query
from tests.spark.children import child_environment
from tests.spark.counting_query import SETTINGS, count, name_service
from tests.spark.file_kill_points import (
    ASKED,
    BOOKIE,
    BY_NAME,
    DECIDED,
    DONE,
    DRIVER,
    OPERATION_POINTS,
    POINTS,
    SENT,
    SERVER,
    FileKillPoint,
    armed_file,
    mark_of,
    pid_file,
)
from tests.spark.killed_store import KilledStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ledger.dev import DevCluster

_FILES, _LINES, _KEYS = 6, 40, 20
_RUNS_MAX = 4
_TIMEOUT_S = 300
_QUICK = {
    "the name of a plan: done",
    "changes of a state have their name, the driver dies",
    "while changes of a state get their name, the bookie dies",
}


def _write_source(folder: Path, numbers: Sequence[int]) -> None:
    """Write files of which a batch takes one, in the order of their times."""
    for number in numbers:
        lines = (json.dumps({"k": f"k{(number * 7 + line) % _KEYS}", "v": line}) for line in range(_LINES))
        place = folder / "source" / f"{number:02d}.json"
        place.write_text("\n".join(lines))
        os.utime(place, (number, number))


def _check_fold(folder: Path, files: int) -> int:
    """Compare what batches told with a fold in plain Python; return how many batches there were.

    Each batch has the next files: one, or two if Spark died between noting a file and planning the batch.
    """
    counts: Counter[str] = Counter()
    number, batch = 0, 0
    while number < files:
        told = json.loads((folder / "batches" / str(batch)).read_text())
        keys: set[str] = set()
        for _ in range(2):
            found = [f"k{(number * 7 + line) % _KEYS}" for line in range(_LINES)]
            number += 1
            counts.update(found)
            keys.update(found)
            if told == {key: counts[key] for key in keys}:
                break
        assert told == {key: counts[key] for key in keys}, f"batch {batch}, up to file {number}"
        batch += 1
    assert sorted(int(one.name) for one in (folder / "batches").glob("[0-9]*")) == list(range(batch))
    return batch


@pytest.fixture
def counting(spark: SparkSession, tmp_path: Path) -> Iterator[SparkSession]:
    """The session of the tests, with the settings of the query, and a folder for it."""
    for name in ("source", "batches"):
        (tmp_path / name).mkdir()
    before = {name: spark.conf.get(name, None) for name in SETTINGS}
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


def _run_until_done(spark: SparkSession, folder: Path, checkpoint: str) -> list[str]:
    """Run the query, again after an error; return the errors."""
    errors: list[str] = []
    while True:
        try:
            count(spark, folder, checkpoint)
        except (StreamingQueryException, Py4JJavaError) as error:
            errors.append(str(error))
            assert len(errors) < _RUNS_MAX, "\n\n".join(errors)
        else:
            return errors


async def _check_tree(address: str, batches: int) -> None:
    """Look at each file of the checkpoint: it is whole, and the last batch has a plan and an end."""
    async with FileCaller(address) as caller:
        waiting, files = ["/checkpoint"], []
        while waiting:
            folder = waiting.pop()
            found = (await caller.ask("GET", folder, "LISTSTATUS")).json()["FileStatuses"]["FileStatus"]
            for one in found:
                path = f"{folder}/{one['pathSuffix']}"
                if one["type"] == "DIRECTORY":
                    waiting.append(path)
                else:
                    files.append(path)
                    assert len(await caller.read(path)) == one["length"], path
        for kind in ("offsets", "commits"):
            numbers = sorted(int(path.rpartition("/")[2]) for path in files
                             if path.startswith(f"/checkpoint/{kind}/") and not path.endswith(".tmp"))  # fmt: skip
            assert numbers[-1] == batches - 1, (kind, files)
            assert numbers == list(range(numbers[0], batches)), "none is missing"


def _driver_dies(folder: Path, addresses: list[str]) -> None:
    """Run the query in a process of its own, which is killed."""
    command = [sys.executable, counting_query.__file__, str(folder), *addresses]
    with (folder / "driver.log").open("wb") as said:
        driver = subprocess.Popen(
            command, cwd=folder, env=child_environment(), stdout=said, stderr=said, start_new_session=True
        )
        pid_file(folder, DRIVER).write_text(str(driver.pid))
        try:
            code = driver.wait(_TIMEOUT_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)
    assert code == -signal.SIGKILL, (folder / "driver.log").read_text()[-3000:]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "point",
    [pytest.param(p, marks=[] if p.name in _QUICK else pytest.mark.slow, id=p.name.replace(" ", "_")) for p in POINTS],
)
def test_a_query_whose_checkpoint_was_hit_ends_as_a_plain_fold(
    point: FileKillPoint, counting: SparkSession, tmp_path: Path, whole_cluster: DevCluster
) -> None:
    pid_file(tmp_path, BOOKIE).write_text(str(whole_cluster.pids()["bookie-1"]))
    with stores(whole_cluster.metadata_uri, f"files-of-{tmp_path.name}", tmp_path) as running:
        store = KilledStore(running, point, tmp_path)
        checkpoint = f"webhdfs://{name_service(counting, tmp_path.name.replace('_', '-'), store.addresses)}/checkpoint"
        written = 0
        if point.in_second_run:
            _write_source(tmp_path, range(3))
            written = 3
            count(counting, tmp_path, checkpoint)
        _write_source(tmp_path, range(written, _FILES))
        armed_file(tmp_path).touch()
        if point.victim == DRIVER:
            _driver_dies(tmp_path, store.addresses)
        errors = _run_until_done(counting, tmp_path, checkpoint)
        assert mark_of(tmp_path).exists(), f"nobody came by: {point.name}"
        sys.stderr.write(f"{point.name}: {len(errors)} errors\n")
        asyncio.run(_check_tree(store.left(), _check_fold(tmp_path, _FILES)))
        # A new run, which knows nothing but the checkpoint, goes on from it.
        _write_source(tmp_path, range(_FILES, _FILES + 1))
        count(counting, tmp_path, f"webhdfs://{store.left()}/checkpoint")
        _check_fold(tmp_path, _FILES + 1)


def test_the_points_have_names_of_their_own_and_each_moment_and_victim_has_some() -> None:
    assert len(BY_NAME) == len(POINTS) + len(OPERATION_POINTS)
    assert len(POINTS) >= 30
    moments, victims = Counter(point.moment for point in POINTS), Counter(point.victim for point in POINTS)
    assert all(moments[moment] >= 5 for moment in (ASKED, DECIDED, SENT, DONE))
    assert all(victims[victim] >= 5 for victim in (SERVER, DRIVER, BOOKIE))
