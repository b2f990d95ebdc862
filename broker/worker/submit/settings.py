"""Settings of a worker that submits applications to Spark: master, mode, what payloads may say, bounds."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import msgspec

from broker.worker.option_units import files_unit
from ledger.errors import UsageError
from ledger.options import MIB, NAMES, Option

DEPLOY_MODES = ("client", "cluster", "connect")
_OF_CONNECT = ("pyspark", "pandas", "pyarrow", "grpc", "grpc_status", "zstandard")
PLAIN_CONF = (
    "spark.default.parallelism",
    "spark.sql.adaptive.enabled",
    "spark.sql.session.timeZone",
    "spark.sql.shuffle.partitions",
)


class SubmitSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Applications of Spark that a worker runs as tasks of type `spark_submit`."""

    master: Annotated[
        str,
        Option(
            "Master that applications of tasks of type spark_submit are submitted to, such as spark://host:7077.",
            name="submit_master",
            metavar="URL",
            shown="none: no such tasks",
        ),
    ] = ""
    deploy_mode: Annotated[
        str,
        Option(
            "Where their drivers run: client = here, in a jail; cluster = on the cluster; connect = programs in Python "
            "have sessions of a driver of their tenant's, which is kept here.",
            name="submit_deploy_mode",
        ),
    ] = "client"
    applications: Annotated[
        tuple[str, ...],
        Option(
            "Files and folders of this machine whose applications payloads may name; they run without a jail.",
            name="submit_applications",
            unit=files_unit("--submit-applications"),
            metavar="PATH,…",
            shown="none",
        ),
    ] = ()
    conf: Annotated[
        tuple[str, ...],
        Option(
            "Settings of Spark that payloads may give; * stands for letters, never for what loads code or opens doors.",
            name="submit_conf",
            unit=NAMES,
            metavar="NAME,…",
        ),
    ] = PLAIN_CONF
    properties: Annotated[
        Path | None,
        Option(
            "Settings of all applications, a file as spark-defaults.conf; their drivers can read it.",
            name="submit_properties",
            metavar="FILE",
            shown="as SPARK_CONF_DIR says",
        ),
    ] = None
    environment: Annotated[
        tuple[str, ...],
        Option(
            "Variables of this worker that applications get besides those of Spark and Hadoop.",
            name="submit_environment",
            unit=NAMES,
            metavar="NAME,…",
            shown="none",
        ),
    ] = ()
    spark_home: Annotated[
        Path | None,
        Option("Installation of Spark.", name="submit_spark_home", shown="SPARK_HOME, else that of pyspark"),
    ] = None
    warm_servers: Annotated[
        int,
        Option("Most drivers that mode connect keeps, each of one tenant.", name="submit_warm_servers", ge=1),
    ] = 4
    warm_idle_s: Annotated[
        float,
        Option("A kept driver that has no application ends after so many seconds.", name="submit_warm_idle_s", ge=1),
    ] = 900.0
    time_s: Annotated[
        float, Option("Longest run in seconds, where the task has no shorter limit.", name="submit_time_s", ge=1)
    ] = 24 * 3600.0
    processes: Annotated[
        int, Option("Most processes and threads of a jailed driver.", name="submit_processes", ge=64)
    ] = 1024
    memory_bytes: Annotated[
        int,
        Option(
            "Most MiB of address space of each process of a jailed driver, and of memory of all where it is bounded.",
            name="submit_memory_mb",
            unit=MIB,
            ge=512 << 20,
        ),
    ] = 8 * 1024 * 1024 * 1024
    scratch_bytes: Annotated[
        int,
        Option("Most MiB that a jailed driver may write, in memory.", name="submit_scratch_mb", unit=MIB, ge=1 << 20),
    ] = 256 * 1024 * 1024

    @property
    def is_cluster(self) -> bool:
        """True if drivers run on the cluster."""
        return self.deploy_mode == "cluster"

    @property
    def is_connect(self) -> bool:
        """True if applications have sessions of warm servers."""
        return self.deploy_mode == "connect"

    @property
    def is_standalone(self) -> bool:
        """True if drivers run on a standalone cluster."""
        return self.is_cluster and self.master.startswith("spark://")

    @property
    def home(self) -> str:
        """Folder of Spark; "" = there is none."""
        if self.spark_home is not None:
            return str(self.spark_home)
        if found := os.environ.get("SPARK_HOME"):
            return found
        spec = find_spec("pyspark")
        places = spec.submodule_search_locations if spec is not None else None
        return next(iter(places), "") if places else ""

    def check(self) -> None:
        """Look at the values.

        Raises:
            UsageError: One makes no sense here.

        """
        if not self.master:
            return
        if self.deploy_mode not in DEPLOY_MODES:
            raise UsageError(f"--submit-deploy-mode {self.deploy_mode}: use one of {', '.join(DEPLOY_MODES)}")
        if self.is_cluster and not self.master.startswith(("spark://", "yarn", "k8s://")):
            raise UsageError(
                f"--submit-master {self.master}: drivers run on a cluster only where there is one: spark://…, yarn or "
                "k8s://…; or take --submit-deploy-mode client"
            )
        if not (Path(self.home) / "bin" / "spark-submit").is_file():
            raise UsageError(
                f"--submit-master {self.master}: there is no bin/spark-submit in {self.home or 'any folder known'}: "
                "say where Spark is by --submit-spark-home or SPARK_HOME, or install pyspark"
            )
        if self.is_connect:
            self._check_connect()
        if self.properties is not None and not self.properties.is_file():
            raise UsageError(f"--submit-properties {self.properties}: there is no such file")

    def _check_connect(self) -> None:
        missing = [name for name in _OF_CONNECT if find_spec(name) is None]
        if missing:
            raise UsageError(
                f"--submit-deploy-mode connect: Spark Connect's client needs {', '.join(missing)} beside this worker: "
                "install pyspark[connect]"
            )
        if self.applications:
            raise UsageError(
                "--submit-deploy-mode connect: applications of --submit-applications have a driver of their own: give "
                "them to a worker in client mode"
            )
