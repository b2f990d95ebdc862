"""Apache BookKeeper's own client, as a process that takes commands (tests/compat/java/Driver.java), and its shell."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from ledger.zookeeper_server.java import find_java
from tools.fetch_bookkeeper import FetchError, cache_dir

__all__ = ["UNAUTHORIZED", "JavaClient", "JavaError", "compile_driver", "java_command", "payload_of", "run_shell"]

_SOURCES = Path(__file__).with_name("java")
_LOG_CONFIG = _SOURCES / "log4j2.xml"
_OPENED = ("java.nio", "java.io", "java.util.zip", "sun.nio.ch", "jdk.internal.misc")
_CALL_S_MAX = 120.0
UNAUTHORIZED = -102
"""BKException.Code.UnauthorizedAccessException."""


def java_command(jars: Path, *, heap_mib: int, classes: Path | None = None, log_level: str = "WARN") -> list[str]:
    """Return the beginning of a command that runs one of BookKeeper's programs; its class and arguments follow."""
    path = f"{jars}/*" if classes is None else f"{classes}:{jars}/*"
    return [
        find_java(),
        f"-Dlog4j.configurationFile={_LOG_CONFIG}",
        f"-Dloglevel={log_level}",
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
        "-Dio.netty.tryReflectionSetAccessible=true",
        "-Xms64m",
        f"-Xmx{heap_mib}m",
        "-XX:MaxDirectMemorySize=256m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",  # Tests are short: what starts quickly wins.
        "-Xshare:auto",
        "-cp",
        path,
    ]


def compile_driver(jars: Path) -> Path:
    """Return the folder with the driver's classes; compiled once for these sources and these JARs.

    Raises:
        FetchError: There is no Java compiler.

    """
    sources = sorted(_SOURCES.glob("*.java"))
    digest = hashlib.sha256(jars.name.encode())
    for source in sources:
        digest.update(source.read_bytes())
    folder = cache_dir() / f"bookkeeper-driver-{digest.hexdigest()[:12]}"
    if folder.is_dir():
        return folder
    compiler = Path(find_java()).resolve().with_name("javac")
    if not compiler.exists():
        raise FetchError(f"no {compiler}: this Java cannot compile, install a JDK (on Debian: openjdk-17-jdk-headless)")
    new = folder.with_name(f"{folder.name}.new.{os.getpid()}")
    shutil.rmtree(new, ignore_errors=True)
    command = [str(compiler), "-cp", f"{jars}/*", "-d", str(new), *map(str, sources)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    try:
        new.rename(folder)
    except OSError:  # another test process was first
        shutil.rmtree(new)
    return folder


def payload_of(entry_id: int, size: int = 100) -> bytes:
    """Return what entry N of a test ledger holds, as Payload.java does."""
    head = b"%d:" % entry_id
    return head + bytes([ord("a") + entry_id % 26]) * (size - len(head))


class JavaError(Exception):
    """What a command of the Java client threw.

    Attributes:
        name: Simple name of its class, such as `BKLedgerFencedException`.

    """

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name


class JavaClient:
    """One virtual machine with Java clients in it, one for each cluster and protocol. Any thread may call.

    Args:
        jars: Folder of BookKeeper's JARs.
        log: Takes what the client logs.

    """

    def __init__(self, jars: Path, log: Path) -> None:
        command = [*java_command(jars, heap_mib=384, classes=compile_driver(jars)), "Driver"]
        with log.open("ab") as log_file:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log_file, start_new_session=True
            )
        self._log = log
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[dict[str, Any]]] = {}
        self._reader = threading.Thread(target=self._read, name="java-client", daemon=True)
        self._reader.start()

    def submit(self, command: str, **options: Any) -> Future[dict[str, Any]]:
        """Send a command; the future gets its answer, or a `JavaError`."""
        future: Future[dict[str, Any]] = Future()
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = future
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps({"id": number, "command": command, **options}).encode() + b"\n")
            self._process.stdin.flush()
        return future

    def call(self, command: str, **options: Any) -> dict[str, Any]:
        """Run a command and return its answer."""
        return self.submit(command, **options).result(_CALL_S_MAX)

    async def ask(self, command: str, **options: Any) -> dict[str, Any]:
        """Run a command while the event loop goes on."""
        return await asyncio.wrap_future(self.submit(command, **options))

    def close(self) -> None:
        """End the virtual machine: its writers stop as if killed, their ledgers stay open."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            future = self._waiting.pop(answer["id"])
            if answer["ok"]:
                future.set_result(answer)
            else:
                future.set_exception(JavaError(answer["error"], answer["message"]))
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(JavaError("Driver", f"the virtual machine has ended, see {self._log}"))


def run_shell(jars: Path, conf: Path, arguments: Sequence[str], *, timeout_s: float = 60) -> str:
    """Run a command of `bookkeeper shell`; return what it printed and logged.

    Raises:
        AssertionError: It failed; the message holds what it printed.

    """
    command = java_command(jars, heap_mib=128)
    command += ["org.apache.bookkeeper.bookie.BookieShell", "-conf", str(conf), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    output = result.stdout + result.stderr
    assert result.returncode == 0, output
    return output
