"""Spark Connect: the sources on a server that has the package, asked by a client that is another process."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.children import CHILD_S, child_environment, run_child

_ROOT = Path(__file__).resolve().parents[2]
_SPARK_HOME = Path(sysconfig.get_path("purelib")) / "pyspark"
_START_S = 200
_PYTHON = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(_ROOT)}
_CLIENT = """
import json, sys, tempfile
from pathlib import Path
from connectors.session import spark_session
from connectors.register import register

options, folder = json.loads(sys.argv[1]), tempfile.mkdtemp(dir=sys.argv[2])
spark = spark_session("asks", conf={"spark.sql.session.timeZone": "UTC"})

def read():
    return spark.read.format("ledger").options(**options).load()

found = {"kind": type(spark).__module__, "by_name": read().count()}

def keep(rows, batch):  # on the server
    place = Path(folder) / str(batch)
    place.write_text(str(rows.count()))

query = (
    spark.readStream.format("ledger").options(**options, startingOffsets="earliest", maxOffsetsPerTrigger="10").load()
    .writeStream.foreachBatch(keep).option("checkpointLocation", folder + "/checkpoint")
    .trigger(availableNow=True).start()
)
query.awaitTermination()
found["batches"] = sum(one.name.isdigit() for one in Path(folder).iterdir())
found["streamed"] = sum(int(one.read_text()) for one in Path(folder).iterdir() if one.name.isdigit())
register(spark)
found["registered"] = read().count()
found["state"] = spark.read.format("ledger_state").options(**options).load().where("table_name = 'map'").count()
print(json.dumps(found))
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except OSError:
        return False
    return True


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Run a server of Spark Connect in a process of its own; return its address."""
    port = free_port()
    conf = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }
    command = [str(_SPARK_HOME / "bin" / "spark-submit"), "--master", "local[2]"]
    command += [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    said = (tmp_path / "server.log").open("w")
    process = subprocess.Popen(
        command, cwd=tmp_path, env=child_environment(**_PYTHON), stdout=said, stderr=said, start_new_session=True
    )
    try:
        deadline = time.monotonic() + _START_S
        while not answers(port):
            assert process.poll() is None, (tmp_path / "server.log").read_text()
            assert time.monotonic() < deadline, (tmp_path / "server.log").read_text()
            time.sleep(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        said.close()


@pytest.mark.slow
@pytest.mark.timeout(_START_S + 4 * CHILD_S)
def test_a_client_of_spark_connect_reads_streams_and_registers(server: str, log: Any, tmp_path: Path) -> None:
    log.fill(40)
    (tmp_path / "kept").mkdir()
    command = [sys.executable, "-c", _CLIENT, json.dumps(log.options()), str(tmp_path / "kept")]
    found = run_child(command, tmp_path, **_PYTHON, SPARK_REMOTE=server)
    assert found["kind"] == "pyspark.sql.connect.session"
    assert found["by_name"] == found["registered"] == found["streamed"] == log.revision
    assert found["batches"] > 1
    assert found["state"] == len(log.state)
