"""Apache BookKeeper beside ours: three of its bookies and its client, with room and time to be fast.

The JARs are those of `tools/fetch_bookkeeper.py`. Heap, direct memory and the optimising compiler are as a server
would have them; the journal syncs before it answers, as ours does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ledger.dev.ports import HOST, choose_port
from ledger.dev.process import ProcessId, end_all, spawn
from ledger.zookeeper.ledgers import LedgerStore
from ledger.zookeeper.session import connect
from ledger.zookeeper_server.java import find_java
from tools.fetch_bookkeeper import ensure_jars

__all__ = ["JavaBookies", "JavaLoad", "java_peer"]

_OPENED = ("java.nio", "java.io", "java.util.zip", "sun.nio.ch", "jdk.internal.misc")
_START_S_MAX = 120.0
_LOST_BOOKIES_RETRIES = 6
_LOST_BOOKIES_PAUSE_S = 5.0
_CONF = """\
metadataServiceUri={uri}
bookiePort={port}
allowLoopback=true
advertisedAddress=127.0.0.1
listeningInterface=lo
journalDirectories={folder}/journal
ledgerDirectories={folder}/ledgers
httpServerEnabled=false
journalSyncData=true
journalPreAllocSizeMB=16
journalMaxSizeMB=256
logSizeLimit=134217728
diskUsageThreshold=0.99
diskUsageWarnThreshold=0.98
zkTimeout=10000
numAddWorkerThreads=1
numReadWorkerThreads=2
serverNumIOThreads=2
maxPendingAddRequestsPerThread=0
"""
# The last line: by default a bookie that lags more than 10,000 small adds behind the ack quorum refuses some, and its
# client's writer then fails.
_LOG_CONF = """\
<Configuration status="WARN"><Appenders><Console name="C" target="SYSTEM_ERR"/></Appenders>
<Loggers><Root level="warn"><AppenderRef ref="C"/></Root></Loggers></Configuration>
"""


def _command(folder: Path, path: str) -> list[str]:
    log_conf = folder / "log4j2.xml"
    log_conf.write_text(_LOG_CONF, encoding="utf-8")
    return [
        find_java(),
        f"-Dlog4j.configurationFile={log_conf}",
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
        "-Dio.netty.tryReflectionSetAccessible=true",
        "-Xms128m",
        "-Xmx512m",
        "-XX:MaxDirectMemorySize=512m",
        "-XX:+UseSerialGC",
        "-cp",
        path,
    ]


class JavaBookies:
    """Three bookies under a root of their own in a ZooKeeper that runs."""

    def __init__(self, zookeeper: str, folder: Path) -> None:
        self.uri = f"zk+hierarchical://{zookeeper}/java/ledgers"
        self.folder = folder
        self._zookeeper = zookeeper
        self._path = f"{ensure_jars()}/*"
        self._ports: list[int] = []
        self._processes: list[ProcessId] = []
        for _ in range(3):
            self._ports.append(choose_port(taken=set(self._ports)))

    @property
    def pids(self) -> list[int]:
        """Their processes."""
        return [process.pid for process in self._processes]

    def start(self) -> None:
        """Start them, new or on their data, and wait until they are registered."""
        asyncio.run(self._registered(0))
        for port in self._ports:
            folder = self.folder / f"java-{port}"
            for name in ("journal", "ledgers"):
                (folder / name).mkdir(parents=True, exist_ok=True)
            conf = folder / "bookie.conf"
            conf.write_text(_CONF.format(uri=self.uri, port=port, folder=folder), encoding="utf-8")
            command = [*_command(folder, self._path), "org.apache.bookkeeper.server.Main", "--conf", str(conf)]
            self._processes.append(spawn(command, log=folder / "log", env=os.environ))
        asyncio.run(self._registered(len(self._ports)))

    def stop(self) -> None:
        """End them in good order."""
        end_all(self._processes, grace_s=30)
        self._processes.clear()

    async def _registered(self, count: int) -> None:
        session = await connect([self._zookeeper])
        try:
            ledgers = LedgerStore(session, "/java/ledgers")
            await ledgers.ensure_layout(str(uuid.UUID(bytes=os.urandom(16))))
            deadline = time.monotonic() + _START_S_MAX
            wanted = {f"{HOST}:{port}" for port in self._ports[:count]}
            while not wanted <= set(await ledgers.writable_bookies()):
                assert time.monotonic() < deadline, f"Java bookies do not register: see the logs in {self.folder}"
                await asyncio.sleep(0.1)
        finally:
            await session.close()


class JavaLoad:
    """BookKeeper's own client as a process (tests/bench/java/Load.java); one command at a time."""

    def __init__(self, folder: Path) -> None:
        jars = ensure_jars()
        classes = folder / "classes"
        compiler = Path(find_java()).resolve().with_name("javac")
        source = Path(__file__).with_name("java") / "Load.java"
        subprocess.run([str(compiler), "-cp", f"{jars}/*", "-d", str(classes), str(source)], check=True)
        command = [*_command(folder, f"{classes}:{jars}/*"), "Load"]
        with (folder / "load.log").open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def ask(self, command: str, **options: Any) -> dict[str, Any]:
        """Run a command and return its answer.

        Its client may take bookies that have just come back for lost: then it is asked again, a few times.
        """
        for _ in range(_LOST_BOOKIES_RETRIES):
            answer = self._ask_once(command, options)
            if "BKNotEnoughBookies" not in str(answer.get("error")):
                break
            time.sleep(_LOST_BOOKIES_PAUSE_S)
        assert "error" not in answer, answer
        return answer

    def _ask_once(self, command: str, options: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"command": command, **options}) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def java_peer(zookeeper: str, folder: Path) -> Iterator[tuple[JavaBookies, JavaLoad]]:
    """Run Java bookies and the Java client."""
    folder.mkdir(parents=True, exist_ok=True)
    bookies, load = JavaBookies(zookeeper, folder), JavaLoad(folder)
    try:
        bookies.start()
        yield bookies, load
    finally:
        load.close()
        bookies.stop()
