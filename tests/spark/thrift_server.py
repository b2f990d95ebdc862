"""Spark's Thrift server as a process, with a metastore and a warehouse of its own, and what asks it over JDBC."""

from __future__ import annotations

import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.spark.children import CHILD_S, child_environment

_ROOT = Path(__file__).resolve().parents[2]
_BIN = Path(sysconfig.get_path("purelib")) / "pyspark" / "bin"
_COMMAND = ("spark-submit", "--class", "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2", "spark-internal")
_QUIET = ["--silent=true", "--showHeader=false", "--outputformat=tsv2"]


class ThriftServer:
    """A server that listens.

    Attributes:
        port: Of it, on loopback.
        warehouse: Folder of its tables.

    """

    def __init__(self, port: int, folder: Path) -> None:
        self.port = port
        self.warehouse = folder / "warehouse"
        self._folder = folder

    def ask(self, *statements: str) -> list[list[str]]:
        """Return the rows of all statements, as texts; each call has a session of its own."""
        told = [part for one in statements for part in ("-e", one)]
        done = subprocess.run(
            [_BIN / "beeline", "-u", f"jdbc:hive2://127.0.0.1:{self.port}/default", "-n", "ann", *_QUIET, *told],
            cwd=self._folder, env=child_environment(), capture_output=True, text=True,
            timeout=CHILD_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        lines = (line.rpartition("default> ")[2] for line in done.stdout.splitlines())  # Behind its prompts.
        return [line.split("\t") for line in lines if line.strip()]


def _free_port() -> int:
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return int(asked.getsockname()[1])


@contextmanager
def thrift_server(
    folder: Path, settings: dict[str, str], *, command: Sequence[str] = _COMMAND, **environment: str
) -> Iterator[ThriftServer]:
    """Run a server until the end of the block.

    Args:
        folder: For metastore, warehouse and log.
        settings: Of Spark, besides those that every test has.
        command: That starts it.
        environment: Variables of the server.

    """
    server = ThriftServer(_free_port(), folder)
    settings = {
        "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(server.warehouse),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore;create=true",
        **settings,
    }  # fmt: skip
    told = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    place = [f"hive.server2.thrift.port={server.port}", "hive.server2.thrift.bind.host=127.0.0.1"]
    at = [part for one in place for part in ("--hiveconf", one)]
    program = [str(_BIN / command[0]), "--master", "local[2]", "--name", "thrift", *told, *command[1:], *at]
    log_file = folder / "server.log"
    with log_file.open("w") as log:
        process = subprocess.Popen(
            program, cwd=folder, stdout=log, stderr=log,
            env=child_environment(PYSPARK_PYTHON=sys.executable, PYTHONPATH=str(_ROOT), **environment),
        )  # fmt: skip
    try:
        deadline = time.monotonic() + CHILD_S
        while True:
            assert process.poll() is None, log_file.read_text()[-3000:]
            assert time.monotonic() < deadline, "the server does not listen"
            try:
                socket.create_connection(("127.0.0.1", server.port), timeout=5).close()
            except OSError:
                time.sleep(0.5)
            else:
                break
        yield server
    finally:
        process.terminate()
        process.wait(60)
