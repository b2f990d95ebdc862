"""Points at which a process of a Spark query is killed, and how a process comes to kill itself there.

A point names a function of ours (or of pyspark, or of deltalake) and a moment before or after it, or a file whose
appearing is the moment: so there are no hooks in the product. Every Python process of the query, on the driver and on
executors, finds `sitecustomize` on its path, which calls `install`: when the point's module is imported there, the
function is wrapped. The first process to come to the point leaves a mark and kills the victim with SIGKILL:

* driver: the program, its JVM and, where they are the same machine, all it has started
* executor: the JVM that the task's Python worker belongs to, and the worker
* worker: the Python worker alone
* server: what the query writes to, the leader of a service or the gateway of a log; another one takes over
* bookie: one of three, which all ledgers are on; it stays away as long as the query runs

Standard library only: this is imported before anything else in every process.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

FOLDER_VARIABLE = "RSM_KILL_FOLDER"
MAIN_VARIABLE = "RSM_KILL_MAIN"
POINT_VARIABLE = "RSM_KILL_POINT"
ROLE_VARIABLE = "RSM_KILL_ROLE"
SERVER_VARIABLE = "RSM_KILL_SERVER"
BOOKIE_VARIABLE = "RSM_KILL_BOOKIE"

FOLLOWER, DELTA, PARQUET = "follower", "delta", "parquet"
MAP, TASKS, COMMANDS, TABLE, LOG, PARTITIONS = "map", "tasks", "commands", "table", "log", "partitions"
DRIVER, EXECUTOR, WORKER, SERVER, BOOKIE = "driver", "executor", "worker", "server", "bookie"


class Point(NamedTuple):
    """Where a process dies.

    Attributes:
        name: What has happened then.
        target: "module:function", or a glob below the query's folder whose file is waited for.
        when: "before" or "after" the nth call; "item": the nth item of an iterator was handed over; "end": all were;
            "file": the nth new file was seen.
        nth: 1, 2, …, counted over all processes of a run for calls, in each iterator for items.
        victim: What is killed.
        job: What the query writes: a follower table by the materializer, a plain copy to Delta or Parquet, or a
            service by the sink: MAP and the like are its kinds of rows, PARTITIONS a log that has some.
        behind: Name of the point at which the run before was killed: this one lies on the way back.

    """

    name: str
    target: str
    when: str
    nth: int = 1
    victim: str = DRIVER
    job: str = FOLLOWER
    behind: str = ""


_STREAM = "connectors.source.stream:LedgerStreamReader"
_TABLE = "connectors.delta.follower:FollowerTable"
_FRAME = "pyspark.sql.classic.dataframe:DataFrame"
_SYNC = "rsm_spark.snapshots.delta_sync:sync_commit"
_SYNCED = "the commit is on the disk"
_READ = "connectors.source.tasks:read_partition"
_PART = "connectors.sink.task:write_part"
_LEADER_LINK = "connectors.sink.link:LeaderLink"
_GATEWAY_LINK = "connectors.sink.gateway_link:GatewayLink"
_END = "connectors.sink.writer:end_batch"
_CUTTER = "connectors.sink.chunks:ChunkSplitter"

POINTS: tuple[Point, ...] = (
    # On the way to the first micro-batch
    Point("the session has started", "connectors.session:spark_session", "after"),
    Point("the log was looked at", "connectors.source.look:LogLook.look", "after"),
    Point("the description is looked up", "connectors.source.look:LogLook.description_at", "before"),
    Point("the table was created", "connectors.delta.place:DeltaPlace.create", "after"),
    Point("the source is looked up", "connectors.source.source:LedgerSource.schema", "before"),
    Point("the reader was made", "connectors.source.source:LedgerSource.streamReader", "after", 1, DRIVER, PARQUET),
    Point("the start is known", f"{_STREAM}.initialOffset", "after", 1, DRIVER, DELTA),
    Point("the target is fixed", f"{_STREAM}.prepareForTriggerAvailableNow", "after"),
    # Planning
    Point("the end is asked for", f"{_STREAM}.latestOffset", "before", 1, DRIVER, DELTA),
    Point("the end is known", f"{_STREAM}.latestOffset", "after", 3, DRIVER, PARQUET),
    Point("the progress was reported", f"{_STREAM}.reportLatestOffset", "after", 2, DRIVER, DELTA),
    Point("the plan of a micro-batch was written", "checkpoint/offsets/[0-9]*", "file", 3, DRIVER, DELTA),
    Point("partitions are asked for", f"{_STREAM}.partitions", "before", 2, DRIVER, PARQUET),
    Point("partitions are known", f"{_STREAM}.partitions", "after", 2),
    # Tasks
    Point("a task begins", _READ, "before", 1, EXECUTOR),
    Point("a task connects", "connectors.source.tasks:_TaskBookies._make_pool", "before", 1, EXECUTOR),
    Point("a task asks for entries", "ledger.client.read_handle:ReadHandle.blocks", "before", 1, EXECUTOR),
    Point("a task has checked the links of entries", "connectors.source.link:LogLink.follow", "after", 1, EXECUTOR),
    Point("a task handed over its first batch", _READ, "item", 1, EXECUTOR),
    Point("a task handed over a batch in the middle", _READ, "item", 3, EXECUTOR),
    Point("a task handed over its last batch", _READ, "end", 1, EXECUTOR),
    Point("a Python worker dies in the middle", _READ, "item", 2, WORKER),
    Point("a task that copies has read", _READ, "item", 2, EXECUTOR, PARQUET),
    # What a micro-batch does to a follower
    Point("the rows are fetched", f"{_FRAME}.toArrow", "before", 2),
    Point("the rows were fetched", f"{_FRAME}.toArrow", "after", 2),
    Point("the micro-batch is applied", f"{_TABLE}.apply", "before", 2),
    Point("the merge begins", "deltalake.table:TableMerger.execute", "before", 2),
    Point("the merge has written a file", "table/*.parquet", "file", 2),
    Point("the table has committed", "table/_delta_log/*.json", "file", 3),
    Point("the commit is not on the disk", _SYNC, "before", 2),
    Point("the commit is on the disk", _SYNC, "after", 2),
    Point("the micro-batch was applied", f"{_TABLE}.apply", "after", 2),
    Point("all is applied and nobody was told", "connectors.delta.materialize:Materializer.run", "after"),
    # What a micro-batch does to a plain copy
    Point("a copied file was written", "table/*.parquet", "file", 2, DRIVER, PARQUET),
    Point("a copy is in the file sink's log", "table/_spark_metadata/[0-9]*", "file", 3, DRIVER, PARQUET),
    Point("a copy is in Delta's log", "table/_delta_log/*.json", "file", 3, DRIVER, DELTA),
    Point("the micro-batch is in the checkpoint", "checkpoint/commits/[0-9]*", "file", 2, DRIVER, DELTA),
    Point("the source hears of a commit", f"{_STREAM}.commit", "before", 1, DRIVER, PARQUET),
    # On the way back
    Point(
        "the history is checked", "connectors.source.look:LogLook.payload_at", "before", 1, DRIVER, FOLLOWER, _SYNCED
    ),
    Point("the commit is run again", f"{_TABLE}.apply", "after", 1, DRIVER, FOLLOWER, "the rows were fetched"),
    Point("the plan is read again", f"{_STREAM}.partitions", "after", 1, DRIVER, DELTA, "a copy is in Delta's log"),
    Point("a task reads again", _READ, "item", 1, DRIVER, PARQUET, "a copied file was written"),
)
"""In the order in which a query comes by them."""


def _sink_points(kind: str) -> Iterator[Point]:
    """Yield the points of a query that writes by the sink, in the order in which it comes by them."""
    ended = f"{kind}: the leader has ended the batch"
    link = _GATEWAY_LINK if kind in {LOG, PARTITIONS} else _LEADER_LINK
    start = f"{link}.start_calls" if kind == COMMANDS else f"{link}.start"
    for name, target, when, nth, victim, behind in (
        # The driver, whose batches are one command each
        ("the sink is looked up", "connectors.sink.format:LedgerFormat.streamWriter", "before", 1, DRIVER, ""),
        ("the writer was made", "connectors.sink.format:LedgerFormat.streamWriter", "after", 2, DRIVER, ""),
        ("the plan of the batch was written", "checkpoint/offsets/[0-9]*", "file", 2, DRIVER, ""),
        ("the first part is begun", _PART, "before", 1, DRIVER, ""),
        ("a part is begun", _PART, "before", 2, DRIVER, ""),
        ("its rows are read", f"{_CUTTER}.add", "before", 50, DRIVER, ""),
        ("a part was written and nobody was told", _PART, "after", 2, DRIVER, ""),
        ("the first batch is ended", _END, "before", 1, DRIVER, ""),
        ("the batch is ended", _END, "before", 2, DRIVER, ""),
        ("the way to the leader is looked for", f"{link}.of_process", "before", 1, DRIVER, ""),
        ("the way to the leader was found", f"{link}.of_process", "after", 1, DRIVER, ""),
        ("the batch becomes one command", "connectors.sink.marks:end_marks", "item", 1, DRIVER, ""),
        ("the first batch is sent to the leader", f"{link}.send", "before", 1, DRIVER, ""),
        ("the batch is sent to the leader", f"{link}.send", "before", 2, DRIVER, ""),
        ("the leader has ended the first batch", f"{link}.send", "after", 1, DRIVER, ""),
        ("the leader has ended the batch", f"{link}.send", "after", 2, DRIVER, ""),
        ("the end is not in the checkpoint", _END, "after", 2, DRIVER, ""),
        ("the first batch is in the checkpoint", "checkpoint/commits/[0-9]*", "file", 1, DRIVER, ""),
        ("the batch is in the checkpoint", "checkpoint/commits/[0-9]*", "file", 2, DRIVER, ""),
        # Executors and their Python workers, which send chunks
        ("a part is begun on an executor", _PART, "before", 1, EXECUTOR, ""),
        ("an executor reads rows", f"{_CUTTER}.add", "before", 100, EXECUTOR, ""),
        ("a task looks for the leader", f"{link}.of_process", "before", 1, EXECUTOR, ""),
        ("a task sends its first chunk", start, "before", 1, EXECUTOR, ""),
        ("a task has sent its first chunk", start, "after", 1, EXECUTOR, ""),
        ("a task sends a chunk", start, "before", 2, EXECUTOR, ""),
        ("a task has sent its third chunk", start, "after", 3, EXECUTOR, ""),
        ("a task sends a late chunk", start, "before", 6, EXECUTOR, ""),
        ("a part was sent and the driver was not told", _PART, "after", 1, EXECUTOR, ""),
        ("a Python worker dies at its first row", f"{_CUTTER}.add", "before", 1, WORKER, ""),
        ("a Python worker dies between two chunks", start, "before", 3, WORKER, ""),
        ("a Python worker dies behind a chunk", start, "after", 4, WORKER, ""),
        ("a Python worker dies at its end", _PART, "after", 1, WORKER, ""),
        # The leader, or the gateway
        ("the leader dies before the first chunk is sent", start, "before", 1, SERVER, ""),
        ("the leader dies behind the first chunk", start, "after", 1, SERVER, ""),
        ("the leader dies behind a chunk", start, "after", 4, SERVER, ""),
        ("the leader dies before the end is sent", f"{link}.send", "before", 1, SERVER, ""),
        ("the leader dies behind the end", f"{link}.send", "after", 1, SERVER, ""),
        # A bookie
        ("a bookie dies before the first part is begun", _PART, "before", 1, BOOKIE, ""),
        ("a bookie dies before the first chunk is sent", start, "before", 1, BOOKIE, ""),
        ("a bookie dies behind the first chunk", start, "after", 1, BOOKIE, ""),
        ("a bookie dies behind a chunk", start, "after", 4, BOOKIE, ""),
        ("a bookie dies before the end is sent", f"{link}.send", "before", 1, BOOKIE, ""),
        ("a bookie dies behind the end", f"{link}.send", "after", 1, BOOKIE, ""),
        # On the way back
        ("the batch is written again", _PART, "before", 1, DRIVER, ended),
        ("the batch is sent again", f"{link}.send", "after", 1, DRIVER, ended),
        ("the batch is ended again", _END, "after", 1, DRIVER, ended),
    ):
        yield Point(f"{kind}: {name}", target, when, nth, victim, kind, behind)


SINKS = (MAP, TASKS, COMMANDS, TABLE, LOG, PARTITIONS)
POINTS += tuple(point for kind in SINKS for point in _sink_points(kind))

BY_NAME = {point.name: point for point in POINTS}


def mark_of(folder: Path, point: Point) -> Path:
    """Return the file that says that a point was reached; it holds the ids of the processes that were killed."""
    return folder / f"{point.name}.reached"


def install() -> None:
    """Have this process kill its query at the point that the environment names; no-op elsewhere and for files."""
    os.environ.setdefault(MAIN_VARIABLE, str(os.getpid()))
    point = BY_NAME.get(os.environ.get(POINT_VARIABLE, ""))
    if point is None or point.when == "file":
        return
    if point.victim in {EXECUTOR, WORKER} and os.environ.get(ROLE_VARIABLE) != EXECUTOR:
        return
    sys.meta_path.insert(0, _Watch(point, Path(os.environ[FOLDER_VARIABLE])))


class _Watch(importlib.abc.MetaPathFinder):
    """Wraps the function of a point right after its module was imported, before others take it from there."""

    def __init__(self, point: Point, folder: Path) -> None:
        self._point, self._folder = point, folder
        self._module, _, self._function = point.target.partition(":")

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        assert spec is not None, f"{fullname} is gone"
        loader: Any = spec.loader
        execute = loader.exec_module

        def execute_and_wrap(module: ModuleType) -> None:
            execute(module)
            self._wrap(module)

        loader.exec_module = execute_and_wrap
        return spec

    def _wrap(self, module: ModuleType) -> None:
        *owners, name = self._function.split(".")
        owner: Any = module
        for part in owners:
            owner = getattr(owner, part)
        # The class's own attribute: an inherited one would be wrapped for its siblings too.
        setattr(owner, name, _wrapped(getattr(owner, name), self._point, self._folder))


def _wrapped(function: Callable[..., Any], point: Point, folder: Path) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        if point.when == "before" and _is_nth(point, folder):
            kill(point, folder)
        result = function(*arguments, **named)
        if point.when == "after" and _is_nth(point, folder):
            kill(point, folder)
        return result

    @functools.wraps(function)
    def iterate(*arguments: Any, **named: Any) -> Iterator[Any]:
        for number, item in enumerate(function(*arguments, **named), start=1):
            yield item
            # Asked for the next one: Spark has this one.
            if point.when == "item" and number == point.nth:
                kill(point, folder)
        if point.when == "end":
            kill(point, folder)

    return call if point.when in {"before", "after"} else iterate


def _is_nth(point: Point, folder: Path) -> bool:
    """Count a call, over all processes."""
    descriptor = os.open(folder / f"{point.name}.calls", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(descriptor, b".")
        return os.fstat(descriptor).st_size >= point.nth
    finally:
        os.close(descriptor)


def kill(point: Point, folder: Path) -> None:
    """Kill the victim, this process with it, unless a process was here before."""
    if point.victim in {SERVER, BOOKIE}:
        server = int(os.environ[SERVER_VARIABLE if point.victim == SERVER else BOOKIE_VARIABLE])
        if leave_mark(point, folder, [server]):
            os.kill(server, signal.SIGKILL)
        return
    if point.victim == WORKER:
        victims = []
    elif point.victim == EXECUTOR:
        victims = [_machine_above(os.getpid())]
    else:
        victims = [-int(os.environ[MAIN_VARIABLE])]
    victims.append(os.getpid())
    if leave_mark(point, folder, victims):
        for victim in victims:
            os.kill(victim, signal.SIGKILL)
        signal.pause()


def leave_mark(point: Point, folder: Path, victims: Sequence[int]) -> bool:
    """Note that the point was reached; False if it had been before."""
    try:
        descriptor = os.open(mark_of(folder, point), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        return False
    os.write(descriptor, " ".join(map(str, victims)).encode())
    os.close(descriptor)
    return True


def _machine_above(pid: int) -> int:
    """Return the JVM that a Python worker belongs to: it or the daemon that forked it is the JVM's child."""
    while pid > 1:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
        if name == "java":
            return pid
        pid = int(rest.split()[1])
    raise AssertionError("this is no worker of a JVM")
