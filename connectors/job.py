"""Frame of every job in `jobs/`: wrong arguments, log, signals, failures, and the one JSON line that ends it.

A job is a script of a few lines, so that spark-submit takes it. What it shares with others is here, in a package that
is installed or shipped by `--py-files`: executors find nothing that merely lies beside a script.

    PARSER = job_parser("materialize", __doc__)
    PARSER.add_argument("--table", required=True, help="path or URI of the Delta table")
    add_log_arguments(PARSER)

    def work(arguments: argparse.Namespace, run: JobRun) -> Mapping[str, Any]:
        run.say(read_revision=7)        # a line of progress
        return {"revision": 7}          # fields of the last line

    def main(argv: Sequence[str] | None = None) -> int:
        return run_job(PARSER, work, argv, shown=("log", "table"))

Exit codes: 0 = done; 1 = failed, and the last line of standard output is an object whose `error` says what to do;
2 = wrong arguments, and the one line on standard error says which.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, NoReturn

import msgspec

from connectors.error_text import own_words, spoken_error, store_complaint
from connectors.errors import ConnectorError, OptionError
from ledger.errors import LedgerError
from ledger.logs import LOG_FORMAT_VARIABLE, LOG_FORMATS, LOG_LEVEL_VARIABLE, configure_logs
from rsm_spark.errors import RsmError

DONE = 0
FAILED = 1
WRONG_ARGUMENTS = 2

_LOGGER = logging.getLogger(__name__)
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_EXIT_CODES = "exit codes: 0 = done, 1 = failed (the last line says why), 2 = wrong arguments"
# They report every lost connection at length; what that means is said by our own lines.
_QUIET = ("py4j", "kazoo")
_LEVELS = ("debug", "info", "warning", "error")


class JobParser(argparse.ArgumentParser):
    """Reads a job's command line; what is wrong with it is said in one line."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and exit with `WRONG_ARGUMENTS`."""
        self.exit(WRONG_ARGUMENTS, f"{self.prog}: {message} (--help shows an example)\n")


def job_parser(name: str, doc: str | None) -> JobParser:
    """Return the parser of a job, with the arguments that all jobs have.

    Args:
        name: Of the job, as in its JSON lines.
        doc: The job's module docstring: what it does, an example or two, the exit codes if they mean more than for all.

    """
    text = (doc or "").strip()
    parser = JobParser(
        prog=name,
        description=text,
        epilog=None if "xit code" in text else _EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        # "--log" for "--log-level" would one day mean something else.
        allow_abbrev=False,
    )
    level, log_format = os.environ.get(LOG_LEVEL_VARIABLE) or "info", os.environ.get(LOG_FORMAT_VARIABLE) or "text"
    parser.add_argument("--log-level", default=level, choices=_LEVELS, help="of standard error (%(default)s)")
    parser.add_argument("--log-format", default=log_format, choices=LOG_FORMATS, help="of standard error (%(default)s)")
    return parser


class JobRun:
    """One run of a job.

    Args:
        name: Of the job.
        shown: Fields that each of its lines has, such as the log's name.

    """

    def __init__(self, name: str, shown: Mapping[str, Any]) -> None:
        self.name = name
        self._shown = dict(shown)
        self._stop = threading.Event()
        self._lock = threading.Lock()

    def say(self, **fields: Any) -> None:
        """Print one line of progress: a JSON object on standard output. May be called by any thread."""
        line = msgspec.json.encode({"job": self.name, **self._shown, **fields}, enc_hook=str).decode()
        with self._lock:
            print(line, flush=True)  # noqa: T201 - standard output is what a job answers with

    def should_stop(self) -> bool:
        """Tell whether a signal has asked the job to end."""
        return self._stop.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait for so long, or until the job is asked to end; return whether it is."""
        return self._stop.wait(seconds)

    def stop(self) -> None:
        """Ask the job to end, as a signal does."""
        self._stop.set()


JobWork = Callable[[argparse.Namespace, JobRun], Mapping[str, Any]]
"""Work of a job: returns the fields of its last line. A field `ok` that is false makes the exit code 1."""


def run_job(
    parser: JobParser,
    work: JobWork,
    argv: Sequence[str] | None = None,
    *,
    shown: Sequence[str] = (),
    is_stoppable: bool = False,
) -> int:
    """Run a job and return its exit code; never raises, and never leaves without the last line.

    Args:
        parser: Of `job_parser`.
        work: What to do; `OptionError` from it, before or after Spark is there, means wrong arguments.
        argv: Arguments; None = those of this process.
        shown: Arguments whose values each JSON line repeats.
        is_stoppable: Whether the work looks at `JobRun.should_stop`: then a first SIGINT or SIGTERM asks it to end and
            it is done (0); without, and from the second on, a signal breaks the work off (1).

    """
    try:
        arguments = parser.parse_args(argv)
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else DONE
    _start_log(arguments)
    run = JobRun(parser.prog, {name: getattr(arguments, name) for name in shown})
    try:
        with _signals_heard(run, is_stoppable=is_stoppable):
            summary = {"ok": True, **work(arguments, run)}
    except OptionError as error:
        return _wrong(parser.prog, error)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the last line tells it
        return _failed(run, error)
    run.say(**summary)
    return DONE if summary["ok"] else FAILED


def _start_log(arguments: argparse.Namespace) -> None:
    if not logging.getLogger().handlers:  # else another program called `main`, and its log is its own
        configure_logs(arguments.log_level, arguments.log_format)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.ERROR)


def _wrong(prog: str, error: Exception) -> int:
    sys.stderr.write(f"{prog}: {error} (--help shows an example)\n")
    return WRONG_ARGUMENTS


def _failed(run: JobRun, error: BaseException) -> int:
    """Say why, last on both outputs: a trace is for the log, and only where it tells more than the sentence."""
    text = str(error) if isinstance(error, _SignalledError) else spoken_error(error)
    if isinstance(error, KeyboardInterrupt):
        text = "broken off by SIGINT"
    is_expected = isinstance(error, ConnectorError | LedgerError | RsmError | KeyboardInterrupt)
    level = logging.DEBUG if is_expected or own_words(error) else logging.ERROR
    if store_complaint(error) is None:  # A trace would show what the store was asked, and by whom.
        _LOGGER.log(level, "where %s failed", run.name, exc_info=error)
    _LOGGER.error("%s failed: %s", run.name, text)
    run.say(ok=False, error=text)
    return FAILED


class _SignalledError(ConnectorError):
    """A signal broke the job off."""


@contextlib.contextmanager
def _signals_heard(run: JobRun, *, is_stoppable: bool) -> Iterator[None]:
    """Have signals end the job in order. Only a main thread hears any: a test or a notebook may call from another."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def hear(number: int, _frame: FrameType | None) -> None:
        if is_stoppable and not run.should_stop():
            run.stop()
            return
        raise _SignalledError(f"broken off by {signal.Signals(number).name}: run it again, it goes on where it was")

    before = [(number, signal.signal(number, hear)) for number in _SIGNALS]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
