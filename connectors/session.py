"""One place that starts Spark sessions: what this package needs set, and nothing that the user has set already."""

from __future__ import annotations

import itertools
import logging
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from connectors.errors import SessionSetupError
from connectors.gateway import spawned_gateway

__all__ = ["cached_jars", "jar_folder", "session_settings", "spark_session"]

_LOGGER = logging.getLogger(__name__)
_CHECKPOINT_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_DELTA_CLASS = "io.delta.sql.DeltaSparkSessionExtension"
_DELTA_JARS = ("delta-spark_4.2_2.13-", "delta-storage-")
_PYTHON_VARIABLE = "PYSPARK_PYTHON"
_PYTHON_SETTING = "spark.pyspark.python"


def jar_folder() -> Path:
    """Return where the set-up keeps Delta's JARs: `$RSM_CACHE_DIR/jars`, else under the user's cache folder."""
    cache = os.environ.get("RSM_CACHE_DIR")
    if cache:
        return Path(cache) / "jars"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rsm-spark" / "jars"


def cached_jars() -> list[Path]:
    """Return Delta's JARs, sorted.

    Raises:
        SessionSetupError: They are not in the cache.

    """
    folder = jar_folder()
    jars = sorted(folder.glob("*.jar"))
    missing = [start for start in _DELTA_JARS if not any(jar.name.startswith(start) for jar in jars)]
    if missing:
        raise SessionSetupError(
            f"Delta's JARs are not in {folder} (missing: {', '.join(f'{start}*.jar' for start in missing)}): run "
            "`make setup`, or point RSM_CACHE_DIR at a cache that has them; sessions without Delta need delta=False"
        )
    return jars


def session_settings(*, delta: bool, master: str, checkpoint: str | None) -> dict[str, str]:
    """Return what this package sets, before what the user has set is taken out.

    Args:
        delta: Whether Spark itself reads or writes Delta tables.
        master: The session's master.
        checkpoint: Checkpoint location of the stream that it will run, if known.

    Raises:
        SessionSetupError: Delta's JARs are needed and not there.

    """
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }
    is_local = master.startswith("local")
    if is_local:
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            # 200 tasks for a shuffle on one machine are 190 too many.
            "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
        }
        if checkpoint is not None and (checkpoint.startswith("file:") or "://" not in checkpoint):
            # Renaming by exists() + rename() saves 60 ms a micro-batch; safe where one driver owns a local folder.
            settings["spark.sql.streaming.checkpointFileManagerClass"] = _CHECKPOINT_MANAGER
    if delta:
        settings |= {
            "spark.jars": ",".join(str(jar) for jar in cached_jars()),
            "spark.sql.extensions": _DELTA_CLASS,
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        }
        if is_local:
            # Delta replays a table's log with 50 tasks by default.
            settings["spark.databricks.delta.snapshotPartitions"] = "2"
    return settings


def spark_session(
    app: str,
    *,
    delta: bool = True,
    local: str | None = None,
    checkpoint: str | None = None,
    conf: Mapping[str, str] | None = None,
    defaults: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a session with what this package needs; an active one is returned as it is.

    What spark-submit, spark-defaults.conf or `conf` say wins; what is set here is logged.

    Args:
        app: Name of the application.
        delta: Whether Spark itself reads or writes Delta tables.
        local: Master to use where the user names none, such as "local[2]"; None = all cores of this machine.
        checkpoint: Checkpoint location of the stream that the session will run, if known.
        conf: The caller's own settings.
        defaults: Settings for what nobody else has set.

    Raises:
        SessionSetupError: Delta's JARs are needed and not there.

    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    users = {**_users_settings(is_submitted=is_submitted), **(conf or {})}
    _set_python(users)
    master = users.get("spark.master") or os.environ.get("MASTER") or local or "local[*]"
    settings = session_settings(delta=delta, master=master, checkpoint=checkpoint) | dict(defaults or {})
    settings |= {"spark.master": master, "spark.app.name": app}
    builder = SparkSession.builder
    for key, value in (conf or {}).items():
        builder = builder.config(key, value)
    for key, value in settings.items():
        if key not in users:
            _LOGGER.info("spark setting %s = %s", key, value)
            builder = builder.config(key, value)
    with spawned_gateway():
        spark = builder.getOrCreate()
    if delta and is_submitted:
        _check_delta(spark)
    return spark


def _set_python(users: Mapping[str, str]) -> None:
    """Have tasks and the look-up of sources run this interpreter: Spark's default is whatever `python3` is."""
    if _PYTHON_VARIABLE not in os.environ and _PYTHON_SETTING not in users:
        os.environ[_PYTHON_VARIABLE] = sys.executable
        _LOGGER.info("%s = %s", _PYTHON_VARIABLE, sys.executable)


def _users_settings(*, is_submitted: bool) -> dict[str, str]:
    """Return what the user has set outside this program."""
    if is_submitted:
        SparkContext._ensure_initialized()  # the JVM that spark-submit started knows
        return dict(SparkConf().getAll())
    # No JVM yet, and it needs the JARs when it starts: so its sources are read here.
    folder = os.environ.get("SPARK_CONF_DIR") or os.path.join(os.environ.get("SPARK_HOME", ""), "conf")  # noqa: PTH118
    found = _defaults(Path(folder) / "spark-defaults.conf")
    words = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    for option, value in itertools.pairwise(words):
        if option in {"--conf", "-c"} and "=" in value:
            key, _, text = value.partition("=")
            found[key] = text
        elif option == "--master":
            found["spark.master"] = value
        elif option == "--jars":
            found["spark.jars"] = value
    return found


def _defaults(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    found: dict[str, str] = {}
    for line in lines:
        text = line.strip()
        if text and not text.startswith("#"):
            key, *rest = (
                text.replace("=", " ", 1).split(maxsplit=1) if "=" in text.split()[0] else text.split(maxsplit=1)
            )
            found[key] = rest[0].strip() if rest else ""
    return found


def _check_delta(spark: SparkSession) -> None:
    """Tell a user of spark-submit that the driver was started without Delta: it is too late to add it here."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None, "a classic session has a JVM"
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        jvm.java.lang.Class.forName(_DELTA_CLASS, False, loader)  # noqa: FBT003 - a Java signature
    except Exception as error:
        jars = ",".join(str(jar) for jar in cached_jars())
        raise SessionSetupError(
            f"spark-submit started the driver without Delta's JARs: submit again with --jars {jars}"
        ) from error
