"""The guide's standalone cluster, on loopback: master, worker, and an application that counts a log's rows there."""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyspark
import pytest

from tests.spark.children import CHILD_S, child_environment
from tests.spark.conftest import WrittenLog
from tests.spark.pool_processes import spark_home

_ROOT = Path(__file__).resolve().parents[2]
_GUIDE = (_ROOT / "docs" / "guides" / "spark-clusters.md").read_text()
_SECTION = _GUIDE.partition("## Standalone")[2].partition("\n## ")[0]
_SERVERS, _SUBMIT = re.findall(r"```sh\n(.*?)```", _SECTION, re.DOTALL)
(_PROGRAM,) = re.findall(r"```python\n(.*?)```", _SECTION, re.DOTALL)
_DOCUMENTED = "127.0.0.1:7077"
_START_S = 240


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[str]:
    """Run master and worker by the guide's commands; return the master's address once the worker is there."""
    address = f"127.0.0.1:{_free_port()}"
    home = spark_home(tmp_path / "home")
    environment = child_environment(
        SPARK_HOME=str(home),
        SPARK_WORKER_DIR=str(tmp_path / "work"),
        SPARK_LOG_DIR=str(tmp_path / "logs"),
        SPARK_DAEMON_MEMORY="256m",
        SPARK_DAEMON_JAVA_OPTS="-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dspark.ui.enabled=false",
    )
    with ExitStack() as stack:
        for number, line in enumerate(_SERVERS.splitlines()):
            port = address.rpartition(":")[2]
            text = line.replace(_DOCUMENTED, address).replace("--port 7077", f"--port {port}")
            # Their pages would want ports that others may have.
            words = [*shlex.split(text), "--webui-port", "0"]
            log = stack.enter_context((tmp_path / f"server-{number}.log").open("ab"))
            process = subprocess.Popen(
                [str(Path(pyspark.__path__[0]) / "bin" / words[0]), *words[1:]],
                env=environment,
                cwd=tmp_path,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            stack.callback(process.wait, 60)
            stack.callback(process.kill)
        deadline_s = time.monotonic() + _START_S
        while "Registering worker" not in (said := (tmp_path / "server-0.log").read_text()):
            assert time.monotonic() < deadline_s, said + (tmp_path / "server-1.log").read_text()
            time.sleep(0.2)
        yield address


@pytest.mark.timeout(900)
def test_the_guides_application_counts_rows_on_a_standalone_cluster(
    servers: str, log: WrittenLog, tmp_path: Path
) -> None:
    log.fill(20, records_per_entry=5)
    (tmp_path / "count_orders.py").write_text(_PROGRAM)
    submit, *words = shlex.split(_SUBMIT.replace(_DOCUMENTED, servers))
    words[-1] = log.name
    done = subprocess.run(
        [str(Path(sys.executable).with_name(submit)), "--conf", "spark.ui.enabled=false", *words],
        cwd=tmp_path,
        env=child_environment(PYSPARK_PYTHON=sys.executable, PYTHONPATH=str(_ROOT), RSM_METADATA_URI=log.metadata_uri),
        capture_output=True,
        text=True,
        timeout=CHILD_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines()[-1] == f"100 spark://{servers}"
    assert list((tmp_path / "work").glob("app-*/0/stderr")), "an executor of the cluster has run it"
