"""Run tasks of the broker on Spark's executors: a pool of workers, each one Spark task for as long as it likes.

    spark-submit --py-files handlers.py jobs/worker_pool.py --tasks handlers --max 20 --metadata-uri zk+…
    python jobs/worker_pool.py --tasks handlers --min 1 --max 4 --threads 8 --until-idle 30
    python jobs/worker_pool.py --min 0 --max 0 --sql-threads 4 --python-threads 2 --delta

The pool grows while tasks wait and all its workers are full, and shrinks when some had nothing to do for a while;
whoever has to go ends what it runs first. A worker that is lost with its executor is started again. With --sql-threads,
tasks of type `spark_sql` run as statements in this driver; with --python-threads, functions of deployed code are given
sessions of it (`spark_python`). Ctrl-C or SIGTERM drains every worker; the second one does
not wait.
Standard output: a JSON line when the pool has changed, and a summary as the last line.
Exit codes: 0 = ended when it was told to, or idle, every worker in good order; 1 = failed, or workers had to be
cancelled: the last line says so; 2 = wrong arguments, or a setting of Spark that cannot go with a pool.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import secrets
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from broker.client.client import AsyncBrokerClient
from broker.machine.policies import SPARK_PYTHON
from broker.pool.controller import PoolController, PoolSettings, PoolShape
from broker.pool.core.sizing import PoolBounds
from broker.pool.member import MemberSpec
from broker.pool.statement_tasks import SPARK_SQL, function_is_missing, statement_function
from broker.worker.codec import load_codec
from broker.worker.executors.threads import ThreadExecutor
from broker.worker.registry import Registry
from broker.worker.settings import WorkerSettings
from broker.worker.submit.settings import SubmitSettings
from broker.worker.work_options import WorkOptions
from broker.worker.worker import Worker
from connectors.errors import OptionError
from connectors.job import JobParser, JobRun, job_parser, run_job
from connectors.job_options import add_options, options_from
from connectors.pool.connect_server import ConnectServer, connect_settings
from connectors.pool.launcher import SparkLauncher
from connectors.pool.settings import local_slots, pool_session
from connectors.pool.shares import write_allocations
from connectors.pool.statements import SharedSession
from connectors.source.preflight import check_source
from ledger.errors import UsageError
from ledger.options import options_in
from ledger.tls import TlsSettings
from rsm_spark.transport.security import Security

if TYPE_CHECKING:
    # Spark is loaded once the arguments are known to be good.
    from pyspark.sql import SparkSession

_ENTRY = "broker.pool.member:run_member"
_STOP_LOOK_S = 0.25
_METADATA_VARIABLE = "RSM_METADATA_URI"
_OF_THE_POOL = (
    "worker_id", "location", "code_dir", "code_reads", *(option.name for option in options_in(SubmitSettings)),
)  # fmt: skip
"""Options of a worker that its pool says: names, and places on an executor's machine; executors submit nothing."""


def _parser() -> JobParser:
    parser = job_parser("worker_pool", __doc__)
    where = parser.add_argument_group("the broker")
    where.add_argument("--metadata-uri", help=f"where its leader is found (default: ${_METADATA_VARIABLE}, else local)")
    where.add_argument("--brokers", default="", metavar="HOST:PORT,…", help="any of the brokers, for the workers")
    where.add_argument("--url", default="", metavar="URL,…", help="their HTTP API, asked what waits (default: found)")
    where.add_argument("--http-token-file", help="file with this job's token for the HTTP API")
    for name, what in (("ca", "authorities that brokers are trusted by"), ("cert", "certificate"), ("key", "its key")):
        where.add_argument(f"--tls-{name}", metavar="PEM", help=f"{what}; a path on every executor too")
    where.add_argument("--token-file", help="file with the cluster's token for workers; a path on every executor too")
    _add_size(parser)
    _add_work(parser)
    driver = parser.add_argument_group("the driver")
    driver.add_argument("--sql-threads", type=int, default=0, help=f"{SPARK_SQL} statements at once (%(default)s)")
    what = f"{SPARK_PYTHON} functions at once (%(default)s)"
    driver.add_argument("--python-threads", type=int, default=0, help=what)
    driver.add_argument("--delta", action="store_true", help="statements and functions read and write Delta tables")
    driver.add_argument("--port", type=int, default=0, help="where workers connect to (default: any that is free)")
    return parser


def _add_size(parser: JobParser) -> None:
    size = parser.add_argument_group("how many workers")
    size.add_argument("--pool", default="", help="name of the pool (default: the application's id)")
    size.add_argument("--min", type=int, default=1, help="workers that there always are (%(default)s)")
    size.add_argument("--max", type=int, help="workers at most (default: as --min)")
    size.add_argument("--idle-s", type=float, default=30.0, help="too many for so long: some end (%(default)s)")
    size.add_argument(
        "--until-idle", type=float, default=0.0, metavar="S", help="end when nothing was to do for so long"
    )


def _add_work(parser: JobParser) -> None:
    work = parser.add_argument_group("what each worker does: as for `rsm worker run`")
    work.add_argument("--py-files", default="", metavar="FILE,…", help="shipped to executors; spark-submit has its own")
    add_options(work, WorkOptions, without=_OF_THE_POOL)


def _spec(given: argparse.Namespace) -> MemberSpec:
    files = {name: getattr(given, name) for name in ("tls_ca", "tls_cert", "tls_key", "token_file")}
    spec = MemberSpec(
        pool=given.pool,
        index=0,
        launch=0,
        host="",
        port=0,
        secret=secrets.token_hex(32),
        brokers=_several(given.brokers),
        metadata_uri=given.metadata_uri or os.environ.get(_METADATA_VARIABLE),
        work=options_from(WorkOptions, given),
        security=Security(**files) if any(files.values()) else None,
    )
    spec.work.settings(given.pool or "pool")  # Checked before Spark is started.
    return spec


def _bounds(given: argparse.Namespace) -> PoolBounds:
    least, most = given.min, given.min if given.max is None else given.max
    if not 0 <= least <= most:
        raise OptionError(f"--min {least} --max {most}: expected 0 or more, and at most as many as --max")
    for name in ("sql_threads", "python_threads"):
        if getattr(given, name) < 0:
            raise OptionError(f"--{name.replace('_', '-')} {getattr(given, name)}: expected 0 or more")
    if most == 0 and not _driver_threads(given):
        raise OptionError(
            "--max 0: a pool without workers runs nothing but statements and functions: give it --sql-threads or "
            "--python-threads"
        )
    for name in ("idle_s", "until_idle"):
        if getattr(given, name) < 0:
            raise OptionError(f"--{name.replace('_', '-')} {getattr(given, name):g}: expected seconds, 0 or more")
    asks = least != most or given.until_idle
    if asks and given.brokers and not (given.url or given.metadata_uri or os.environ.get(_METADATA_VARIABLE)):
        raise OptionError(
            "what waits at the broker is asked over HTTP, to grow, shrink or end by it: say where with --url or "
            "--metadata-uri besides --brokers"
        )
    return PoolBounds(workers_min=least, workers_max=most, threads=given.threads, idle_s=given.idle_s)


def _driver_threads(given: argparse.Namespace) -> int:
    """Return how many tasks run at once in the driver, and beside it."""
    return int(given.sql_threads + given.python_threads)


def _several(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _work(given: argparse.Namespace, run: JobRun) -> Mapping[str, Any]:
    try:
        bounds, spec = _bounds(given), _spec(given)
    except UsageError as error:
        raise OptionError(str(error)) from None
    if not (spec.brokers and given.url):
        _check_metadata(spec)
    with tempfile.TemporaryDirectory(prefix="rsm-pool-") as folder:
        return _with_session(given, run, bounds, spec, Path(folder))


def _check_metadata(spec: MemberSpec) -> None:
    """Refuse a metadata store that is not there, before Spark is started; the broker may come later."""
    of_worker = spec.work.worker
    source = {"log": of_worker.log, "rsmRoot": of_worker.rsm_root}
    if spec.metadata_uri:
        source["metadataUri"] = spec.metadata_uri
    check_source(source, is_stream=False, needs_log=False)


def _with_session(
    given: argparse.Namespace, run: JobRun, bounds: PoolBounds, spec: MemberSpec, folder: Path
) -> Mapping[str, Any]:
    defaults = connect_settings() if given.python_threads else {}
    if _driver_threads(given):
        defaults["spark.scheduler.allocation.file"] = write_allocations(
            folder, statements=given.sql_threads, functions=given.python_threads
        )
    spark = pool_session(f"worker pool {given.pool}".strip(), delta=given.delta, defaults=defaults)
    context = spark.sparkContext
    for file in _several(given.py_files):
        context.addPyFile(file)
    _check_slots(spark, given, bounds)
    spec = msgspec.structs.replace(spec, pool=given.pool or context.applicationId)
    conf = context.getConf()
    host = conf.get("spark.driver.host") or "127.0.0.1"
    settings = PoolSettings(
        bounds=bounds,
        spec=spec,
        bind=conf.get("spark.driver.bindAddress") or host,
        advertise=host,
        port=given.port,
        other_types=(SPARK_SQL, SPARK_PYTHON),
        until_idle_s=given.until_idle,
    )
    try:
        return asyncio.run(_keep(given, run, spark, settings))
    finally:
        if given.python_threads:
            spark.stop()  # Threads of Connect's server would keep the JVM of spark-submit alive.


def _check_slots(spark: SparkSession, given: argparse.Namespace, bounds: PoolBounds) -> None:
    slots = local_slots(spark)
    needed = bounds.workers_max + (1 if _driver_threads(given) else 0)
    if slots is not None and needed > slots:
        what = f"{bounds.workers_max} workers" + (" and a statement" if _driver_threads(given) else "")
        raise OptionError(
            f"--max {bounds.workers_max}: {spark.sparkContext.master} runs {slots} tasks at once, too few for {what}: "
            "lower --max, or take a master with more"
        )


async def _keep(
    given: argparse.Namespace, run: JobRun, spark: SparkSession, settings: PoolSettings
) -> Mapping[str, Any]:
    def say(shape: PoolShape) -> None:
        run.say(pool=settings.spec.pool, **msgspec.structs.asdict(shape))

    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(_asked(given, settings))
        companion = None
        if _driver_threads(given):
            server = ConnectServer(spark) if given.python_threads else None
            if server is not None:
                stack.enter_context(server.holding_port())
            companion = await stack.enter_async_context(_driver_worker(given, spark, settings.spec, server))
        launcher = SparkLauncher(spark, _ENTRY, settings.spec.pool)
        keeper = PoolController(settings, launcher, client, say, companion)
        stack.enter_context(_stopping(keeper))
        watching = asyncio.create_task(_watch_run(run, keeper))
        try:
            summary = await keeper.run()
        finally:
            watching.cancel()
    return {"ok": not summary.cancelled, "pool": settings.spec.pool, **msgspec.structs.asdict(summary)}


@contextlib.asynccontextmanager
async def _asked(given: argparse.Namespace, settings: PoolSettings) -> AsyncIterator[AsyncBrokerClient | None]:
    """Connect to the broker's HTTP API, if anything has to be asked of it."""
    bounds, spec = settings.bounds, settings.spec
    if bounds.workers_min == bounds.workers_max and not settings.until_idle_s:
        yield None
        return
    tls = TlsSettings(ca=given.tls_ca, cert=given.tls_cert, key=given.tls_key) if given.tls_ca else None
    client = await AsyncBrokerClient.connect(
        _several(given.url),
        metadata_uri=spec.metadata_uri,
        token=_token(given.http_token_file),
        log=spec.work.worker.log,
        rsm_root=spec.work.worker.rsm_root,
        tls=tls,
    )
    async with client:
        yield client


def _token(path: str | None) -> str:
    if path is None:
        return ""
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"--http-token-file {path}: it cannot be read: {type(error).__name__}") from None


def _driver_worker(
    given: argparse.Namespace, spark: SparkSession, spec: MemberSpec, server: ConnectServer | None
) -> Worker:
    """Return the worker that runs statements in this process, and functions in processes with sessions of its own."""
    of_pool = spec.work.worker
    registry = Registry()
    registry.add(SPARK_SQL, statement_function(SharedSession(spark), of_pool.log))
    registry.add(SPARK_PYTHON, function_is_missing)
    threads = {SPARK_SQL: given.sql_threads, SPARK_PYTHON: given.python_threads}
    settings = WorkerSettings(
        worker_id=f"{spec.pool}-sql",
        threads=_driver_threads(given),
        types={name: count for name, count in threads.items() if count},
        drain_s=of_pool.drain_s,
        children=of_pool.children,
        jail=of_pool.jail,
        log=of_pool.log,
        rsm_root=of_pool.rsm_root,
    )
    return Worker(
        settings,
        ThreadExecutor(registry),
        brokers=spec.brokers,
        metadata_uri=spec.metadata_uri,
        security=spec.security,
        codec=load_codec(spec.work.codec) if spec.work.codec else None,
        support=server,
    )


@contextlib.contextmanager
def _stopping(keeper: PoolController) -> Any:
    """Have signals stop the pool, where there is a main thread to hear them."""
    loop = asyncio.get_running_loop()
    numbers_heard = []
    with contextlib.suppress(ValueError, RuntimeError):  # not the main thread
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, keeper.stop)
            numbers_heard.append(number)
    try:
        yield
    finally:
        for number in numbers_heard:
            loop.remove_signal_handler(number)


async def _watch_run(run: JobRun, keeper: PoolController) -> None:
    """Stop the pool when the job was asked to end: before signals were heard here, or by another thread."""
    while not run.should_stop():  # noqa: ASYNC110 - it is set by threads and signals
        await asyncio.sleep(_STOP_LOOK_S)
    keeper.stop()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job and return its exit code."""
    return run_job(_parser(), _work, argv, is_stoppable=True)


if __name__ == "__main__":
    sys.exit(main())
