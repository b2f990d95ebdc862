"""A process of a query, or one it writes to, is killed with SIGKILL: every row once, the table = the state."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import runpy
import shlex
import signal
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from ledger.dev import DevCluster
from tests.spark import copy_log
from tests.spark.kill_points import (
    BOOKIE,
    BOOKIE_VARIABLE,
    BY_NAME,
    DELTA,
    DRIVER,
    EXECUTOR,
    FOLDER_VARIABLE,
    FOLLOWER,
    PARQUET,
    POINT_VARIABLE,
    POINTS,
    ROLE_VARIABLE,
    SERVER,
    SERVER_VARIABLE,
    SINKS,
    Point,
    leave_mark,
    mark_of,
)
from tests.spark.kill_targets import TARGETS, Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROOT = Path(__file__).resolve().parents[2]
_JOB = _ROOT / "jobs" / "materialize.py"
_QUICK = {
    "the commit is not on the disk",
    "tasks: the leader has ended the batch",
    "commands: a task has sent its third chunk",
    "partitions: the leader dies behind a chunk",
    "table: a bookie dies behind a chunk",
}
_TIMEOUT_S = 400
_STARTS_MAX = 6
_SLOW_WORKER = "Python worker failed to connect back"
"""Spark gives a Python process ten seconds to start, whatever the machine is busy with: then one starts again."""
_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


class Query:
    """One query over a log, run again and again in one folder."""

    def __init__(self, point: Point, log: Any, folder: Path) -> None:
        self._point, self._log, self._folder = point, log, folder
        # Tasks that die in the middle of their batches need some.
        self._limit = 100 if point.victim == DRIVER else 50_000
        self.table = folder / "table"
        self.target = Target(dict, 0)
        self.bookie_pid = 0

    def _arguments(self) -> list[str]:
        log = self._log
        if self._point.job != FOLLOWER:
            source = [f"{key}={value}" for key, value in log.options().items()]
            source += [f"sink.{key}={value}" for key, value in self.target.options.items()]
            return [copy_log.__file__, self._point.job, str(self._folder), str(self._limit), *source]
        places = ["--table", str(self.table), "--checkpoint", str(self._folder / "checkpoint")]
        more = ["--metadata-uri", log.metadata_uri, "--available-now", "--max-records", str(self._limit)]
        return [str(_JOB), "--log", log.name, *places, *more]

    def killed_at(self, point: Point) -> None:
        """Run until a process was killed: a killed driver ends the run, an executor is replaced and the run goes on."""
        mark = mark_of(self._folder, point)
        for _ in range(_STARTS_MAX):
            with self._started(point) as process:
                try:
                    if point.when == "file":
                        self._kill_on_sight(process, point)
                    code = process.wait(_TIMEOUT_S)
                finally:
                    _kill_group(process)
            if mark.exists() or _SLOW_WORKER not in self._errors():
                break
        assert mark.exists(), f"the query did not come by: {point.name}\n{self._errors()}"
        assert code == (-signal.SIGKILL if point.victim == DRIVER else 0), self._errors()
        # A process of a gigabyte takes its time to go, even after SIGKILL.
        deadline = time.monotonic() + _TIMEOUT_S
        victims = [int(victim) for victim in mark.read_text().split()]
        while any(is_running(victim) for victim in victims):
            assert time.monotonic() < deadline, f"{victims} are still there"
            time.sleep(0.05)

    def _started(self, point: Point) -> subprocess.Popen[bytes]:
        preload = self._folder / "preload"
        preload.mkdir(exist_ok=True)
        (preload / "sitecustomize.py").write_text("from tests.spark import kill_points\n\nkill_points.install()\n")
        path = os.pathsep.join([str(preload), str(_ROOT), os.environ.get("PYTHONPATH", "")])
        variables = {"PYTHONPATH": path, FOLDER_VARIABLE: str(self._folder), POINT_VARIABLE: point.name}
        variables |= {SERVER_VARIABLE: str(self.target.server_pid), BOOKIE_VARIABLE: str(self.bookie_pid)}
        on_executors = {**variables, ROLE_VARIABLE: "executor"}
        conf = {
            "spark.ui.enabled": "false",
            "spark.driver.extraJavaOptions": _JVM,
            "spark.executor.extraJavaOptions": _JVM,
            **{f"spark.executorEnv.{name}": value for name, value in on_executors.items()},
        }
        master = "local[2]" if point.victim in {DRIVER, SERVER, BOOKIE} else "local-cluster[1,1,1024]"
        settings = ["--master", master, *(part for pair in conf.items() for part in ("--conf", "=".join(pair)))]
        with (self._folder / "stderr").open("wb") as errors:
            return subprocess.Popen(
                [sys.executable, *self._arguments()],
                cwd=self._folder,
                env={**os.environ, **variables, "PYSPARK_SUBMIT_ARGS": shlex.join([*settings, "pyspark-shell"])},
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )

    def _kill_on_sight(self, process: subprocess.Popen[bytes], point: Point) -> None:
        before = len(list(self._folder.glob(point.target)))
        while process.poll() is None:
            if len(list(self._folder.glob(point.target))) >= before + point.nth:
                leave_mark(point, self._folder, [-process.pid])
                _kill_group(process)
                return
            time.sleep(0.002)

    def _errors(self) -> str:
        return (self._folder / "stderr").read_text(errors="replace")[-4000:]

    def finish(self) -> None:
        """Run to the end, in the session of the tests."""
        for _ in range(_STARTS_MAX):
            try:
                if self._point.job == FOLLOWER:
                    self._run_job()
                else:
                    copy_log.main(self._arguments()[1:])
            except Exception as error:
                if _SLOW_WORKER not in str(error):
                    raise
            else:
                return
        pytest.fail(f"in {_STARTS_MAX} starts: {_SLOW_WORKER}")

    def _run_job(self) -> None:
        program, *arguments = self._arguments()
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        before, sys.argv = sys.argv, [program, *arguments]
        told = io.StringIO()
        try:
            with contextlib.redirect_stdout(told), pytest.raises(SystemExit) as ended:
                runpy.run_path(program, run_name="__main__")
        finally:
            sys.argv = before
            for number, handler in handlers.items():
                signal.signal(number, handler)
        if ended.value.code != 0:
            raise RuntimeError(told.getvalue())


def is_running(victim: int) -> bool:
    """Whether a process, or one of the group -`victim`, is there and not only waits for its parent to notice."""
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, _, rest = status.read_text().partition(" ")
        except OSError:
            continue
        state, _, group = rest.rpartition(")")[2].split()[:3]
        if victim in {int(pid), -int(group)} and state not in "ZX":
            return True
    return False


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of a run: executors outlive their driver for a while."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def packed(value: Any) -> bytes:
    text = msgspec.msgpack.encode(value)
    return struct.pack(">I", len(text)) + text


def digest_of(state: dict[bytes, tuple[bytes, int]]) -> str:
    """The digest as its definition says it, not as the product computes it."""
    total = 0
    for key, (value, _) in state.items():
        text = struct.pack(">I", 3) + b"map" + packed([key]) + packed([value])
        total += int.from_bytes(hashlib.sha256(text).digest()[:16], "big")
    return (total % 2**128).to_bytes(16, "big").hex()


def check_follower(place: Path, log: Any) -> None:
    table = DeltaTable(str(place))
    rows = table.to_pyarrow_table().to_pylist()
    assert len(rows) == len(log.state)
    assert {row["key"]: (row["value"], row["_revision"]) for row in rows} == log.state
    position = json.loads(next(commit["rsm_position"] for commit in table.history() if "rsm_position" in commit))
    ledger_id, entry_id, payload = log.entries[-1]
    found = [position[name] for name in ("revision", "ledger", "entry", "prefix_hash", "digest", "row_count")]
    prefix_hash = hashlib.sha256(payload).hexdigest()
    assert found == [log.revision, ledger_id, entry_id, prefix_hash, digest_of(log.state), len(log.state)]


def files_of_sink(table: Path) -> Iterator[Path]:
    """The files that the log of Spark's file sink names: others were left behind by killed runs."""
    compacted = sorted(table.glob("_spark_metadata/*.compact"), key=lambda path: int(path.stem))
    first = int(compacted[-1].stem) if compacted else -1
    logs = [path for path in table.glob("_spark_metadata/*") if path.name.isdigit() and int(path.name) > first]
    for path in [*compacted[-1:], *logs]:
        for line in path.read_text().splitlines()[1:]:
            yield Path(json.loads(line)["path"].removeprefix("file://"))


def check_copy(job: str, place: Path, log: Any) -> None:
    if job == DELTA:
        tables = [DeltaTable(str(place)).to_pyarrow_table()]
    else:
        tables = [pq.ParquetFile(file).read() for file in files_of_sink(place)]
    rows = sorted(row for table in tables for row in zip(*(table[c].to_pylist() for c in COPIED), strict=True))
    assert [row[0] for row in rows] == list(range(1, log.revision + 1)), "every record once"
    ends = [row for row in rows if row[3] is not None]
    assert [row[1:] for row in ends] == [(ledger, e, hashlib.sha256(p).digest()) for ledger, e, p in log.entries]


def check_sink(query: Query, point: Point, log: Any, folder: Path, cluster: DevCluster) -> None:
    """Kill the query, let it end, and compare: each record has its row, and each row was written once."""
    name, servers = f"copied-{folder.name}", 2 if point.victim == SERVER else 1
    with TARGETS[point.job](log.metadata_uri, name, folder, servers) as target:
        query.target, query.bookie_pid = target, cluster.pids()["bookie-1"]
        if point.behind:
            query.killed_at(BY_NAME[point.behind])
        query.killed_at(point)
        if point.victim == DRIVER:
            log.fill(3)
            query.finish()
        counts = target.written()
    assert counts == {b"%d" % revision: 1 for revision in range(1, log.revision + 1)}


COPIED = ("revision", "ledger_id", "entry_id", "entry_hash")


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "point",
    [pytest.param(p, marks=[] if p.name in _QUICK else pytest.mark.slow, id=p.name.replace(" ", "_")) for p in POINTS],
)
def test_a_query_that_was_killed_ends_with_every_record_once(
    point: Point, spark: SparkSession, log: Any, tmp_path: Path, whole_cluster: DevCluster
) -> None:
    if point.victim == DRIVER:
        log.fill(30)
        log.roll()
        log.delete(b"key-3", b"nobody")
        log.fill(10)
    else:
        log.fill(45, records_per_entry=1000, keys=500)
    query = Query(point, log, tmp_path)
    if point.job in SINKS:
        check_sink(query, point, log, tmp_path, whole_cluster)
        return
    if point.behind:
        query.killed_at(BY_NAME[point.behind])
    query.killed_at(point)
    if point.victim == DRIVER:
        log.fill(3)
        query.finish()
    if point.job == FOLLOWER:
        check_follower(query.table, log)
    else:
        check_copy(point.job, query.table, log)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("job", "is_driver"),
    [(FOLLOWER, True), (DELTA, True), (PARQUET, True), (FOLLOWER, False)],
    ids=["follower", "delta", "parquet", "executors"],
)
def test_a_query_that_is_killed_again_and_again_ends_with_every_record_once(
    job: str, is_driver: bool, spark: SparkSession, log: Any, tmp_path: Path
) -> None:
    points = [point for point in POINTS if point.job == job and (point.victim == DRIVER) == is_driver]
    query = Query(points[0], log, tmp_path)
    for number, point in enumerate(points):
        if is_driver:
            log.fill(30)
            log.delete(b"key-%d" % number)
        else:
            log.fill(45, records_per_entry=1000, keys=500)
        if number % 3 == 0:
            log.roll()
        query.killed_at(point)
        sys.stderr.write(f"killed: {point.name}\n")
    query.finish()
    if job == FOLLOWER:
        check_follower(query.table, log)
    else:
        check_copy(job, query.table, log)


def test_there_are_thirty_points_of_each_kind_and_those_on_the_way_back_lie_behind_others() -> None:
    assert len(BY_NAME) == len(POINTS)
    jobs = Counter(point.job for point in POINTS)
    assert jobs[FOLLOWER] + jobs[DELTA] + jobs[PARQUET] >= 30
    assert all(jobs[kind] >= 30 for kind in SINKS)
    victims = Counter((point.job, point.victim) for point in POINTS)
    assert all(victims[kind, victim] >= 5 for kind in SINKS for victim in (EXECUTOR, SERVER, BOOKIE))
    for point in POINTS:
        assert not point.behind or BY_NAME[point.behind].job == point.job
        assert point.job in {FOLLOWER, DELTA, PARQUET, *SINKS}
