"""Runs Apache DistributedLog's own classes of tests against a cluster that runs already, ours or BookKeeper's.

Their tests start a cluster by `LocalDLMEmulator`; `java/distributedlog` has a class of this name that comes first on
the class path and points them to the cluster. Nothing else of theirs is changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from ledger.zookeeper_server.java import find_java
from tests.compat.bookies import Bookies, Kind
from tests.compat.java_client import java_command
from tools.fetch_bookkeeper import DISTRIBUTEDLOG_LOCK, DISTRIBUTEDLOG_TESTS_LOCK, FetchError, cache_dir, ensure_jars

__all__ = ["ClassRun", "compile_runner", "run_class"]

_SOURCES = Path(__file__).parent / "java" / "distributedlog"
_PACKAGE = "org.apache.distributedlog"
_HEAP_MIB = 512
_END = "the class"


class ClassRun(NamedTuple):
    """What became of a class of tests.

    Attributes:
        passed: Names of the tests that passed.
        failed: Trace of each one that did not; under "the class" why it did not come to its
            end, if so.
        took_s: How long all of it took.

    """

    passed: set[str]
    failed: dict[str, str]
    took_s: float

    def summary(self) -> str:
        """Return it in one line."""
        failures = "".join(f"; {test}: {trace.splitlines()[0]}" for test, trace in sorted(self.failed.items()))
        return f"{len(self.passed)} passed, {len(self.failed)} failed in {self.took_s:.0f} s{failures}"


def compile_runner() -> Path:
    """Return the folder with the runner's classes; compiled once for these sources and these JARs.

    Raises:
        FetchError: The JARs cannot be had, or there is no Java compiler.

    """
    jars = [ensure_jars(DISTRIBUTEDLOG_LOCK), ensure_jars(DISTRIBUTEDLOG_TESTS_LOCK)]
    sources = sorted(_SOURCES.glob("*.java"))
    digest = hashlib.sha256("".join(folder.name for folder in jars).encode())
    for source in sources:
        digest.update(source.read_bytes())
    folder = cache_dir() / f"distributedlog-runner-{digest.hexdigest()[:12]}"
    if folder.is_dir():
        return folder
    compiler = Path(find_java()).resolve().with_name("javac")
    if not compiler.exists():
        raise FetchError(f"no {compiler}: this Java cannot compile, install a JDK (on Debian: openjdk-17-jdk-headless)")
    new = folder.with_name(f"{folder.name}.new.{os.getpid()}")
    shutil.rmtree(new, ignore_errors=True)
    path = ":".join(f"{each}/*" for each in jars)
    command = [str(compiler), "-cp", path, "-d", str(new), *map(str, sources)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    try:
        new.rename(folder)
    except OSError:  # another test process was first
        shutil.rmtree(new)
    return folder


def run_class(name: str, bookies: Bookies, kind: Kind, log: Path, *, timeout_s: float) -> ClassRun:
    """Run one class in a virtual machine of its own.

    Args:
        name: Of the class, below their package.
        bookies: They lie under `/ledgers` of a ZooKeeper of their own, which the class clears of all else.
        kind: Which kind of bookie a test gets that asks for one more.
        log: Takes what the class logs.
        timeout_s: The class is ended after it.

    """
    tests = ensure_jars(DISTRIBUTEDLOG_TESTS_LOCK)
    command = java_command(ensure_jars(DISTRIBUTEDLOG_LOCK), heap_mib=_HEAP_MIB, classes=compile_runner())
    command[-1] += f":{tests}/*"
    port = bookies.zookeeper.rpartition(":")[2]
    command += ["-ea", f"-Douter.zookeeper.port={port}", f"{_PACKAGE}.DistributedLogTests", f"{_PACKAGE}.{name}"]
    added: list[str] = []
    passed, failed = set[str](), {_END: f"it ended early or took more than {timeout_s:.0f} s, see {log}"}
    began_s = time.monotonic()
    with log.open("ab") as log_file:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log_file, start_new_session=True
        )
    assert process.stdin is not None
    assert process.stdout is not None
    alarm = threading.Timer(timeout_s, os.killpg, (process.pid, signal.SIGKILL))
    alarm.start()
    try:
        for line in process.stdout:
            told: dict[str, Any] = json.loads(line)
            if wish := told.get("ask"):
                if wish == "add":
                    added += bookies.start(kind)
                else:
                    bookies.stop(added.pop())
                process.stdin.write(b"done\n")
                process.stdin.flush()
            elif told.get("end"):
                del failed[_END]
            elif told["failure"] is None:
                passed.add(told["test"])
            else:
                failed[told["test"]] = told["failure"]
    finally:
        alarm.cancel()
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
        for bookie_id in added:
            bookies.stop(bookie_id)
    return ClassRun(passed - failed.keys(), failed, time.monotonic() - began_s)
