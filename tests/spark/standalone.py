"""A standalone cluster on loopback, run by the commands of the guide to clusters."""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from tests.spark.children import child_environment
from tests.spark.pool_processes import spark_home

__all__ = ["DOCUMENTED", "PROGRAM", "SUBMIT", "standalone_cluster"]

_ROOT = Path(__file__).resolve().parents[2]
_GUIDE = (_ROOT / "docs" / "guides" / "spark-clusters.md").read_text()
_SECTION = _GUIDE.partition("## Standalone")[2].partition("\n## ")[0]
_SERVERS, SUBMIT = re.findall(r"```sh\n(.*?)```", _SECTION, re.DOTALL)
(PROGRAM,) = re.findall(r"```python\n(.*?)```", _SECTION, re.DOTALL)
DOCUMENTED = "127.0.0.1:7077"
_START_S = 240


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def standalone_cluster(folder: Path, **environment: str) -> Iterator[str]:
    """Run master and worker by the guide's commands; return the master's address once the worker is there."""
    address = f"127.0.0.1:{_free_port()}"
    home = spark_home(folder / "home")
    environment = child_environment(
        SPARK_HOME=str(home),
        SPARK_WORKER_DIR=str(folder / "work"),
        SPARK_LOG_DIR=str(folder / "logs"),
        SPARK_DAEMON_MEMORY="256m",
        SPARK_DAEMON_JAVA_OPTS="-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dspark.ui.enabled=false",
        **environment,
    )
    with ExitStack() as stack:
        for number, line in enumerate(_SERVERS.splitlines()):
            port = address.rpartition(":")[2]
            text = line.replace(DOCUMENTED, address).replace("--port 7077", f"--port {port}")
            # Their pages would want ports that others may have.
            words = [*shlex.split(text), "--webui-port", "0"]
            log = stack.enter_context((folder / f"server-{number}.log").open("ab"))
            process = subprocess.Popen(
                [str(Path(pyspark.__path__[0]) / "bin" / words[0]), *words[1:]],
                env=environment,
                cwd=folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            stack.callback(process.wait, 60)
            stack.callback(process.kill)
        deadline_s = time.monotonic() + _START_S
        while "Registering worker" not in (said := (folder / "server-0.log").read_text()):
            assert time.monotonic() < deadline_s, said + (folder / "server-1.log").read_text()
            time.sleep(0.2)
        yield address
