"""Settings of Spark that these packages want: the session builder sets them, `conf/spark-defaults.conf` shows them.

Each is a recommendation: what the user has set wins, always.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

DAEMON_MODULE = "spark.python.daemon.module"
"""The one setting that the session builder leaves out where the tasks' interpreter may lack this package."""
DELTA_JARS = "spark.jars"
"""The one setting whose value is a matter of the machine: see `connectors.session.cached_jars`."""

_CORES_MIN = 2


class When(StrEnum):
    """Uses that need a setting."""

    ALWAYS = "always"
    INSTALLED = "installed"
    LOCAL = "local"
    LOCAL_CHECKPOINT = "local checkpoint"
    POOL = "pool"
    DELTA = "delta"
    LOCAL_DELTA = "local delta"


class SparkSetting(NamedTuple):
    """One setting.

    Attributes:
        key: Spark's name for it.
        value: What it should be; "{cores}" stands for the machine's cores, "" for `DELTA_JARS`.
        when: What it is for.
        why: In a sentence or two.

    """

    key: str
    value: str
    when: When
    why: str


SPARK_SETTINGS: tuple[SparkSetting, ...] = (
    SparkSetting(
        "spark.sql.session.timeZone",
        "UTC",
        When.ALWAYS,
        "Times of a log are UTC; a table must not differ by where it was made.",
    ),
    SparkSetting(
        "spark.sql.execution.arrow.pyspark.enabled",
        "true",
        When.ALWAYS,
        "toPandas() and createDataFrame() go by Arrow, as the source itself does.",
    ),
    SparkSetting(
        "spark.sql.python.filterPushdown.enabled",
        "true",
        When.ALWAYS,
        "The source's option pushdown=true needs it, and a batch read fails without.",
    ),
    SparkSetting(
        "spark.speculation",
        "false",
        When.POOL,
        "A task of a pool is a worker that lives as long as the pool: a second copy and the first would drive each "
        "other out. A pool does not start where it is on; the rest that a pool wants, it sets itself.",
    ),
    SparkSetting(
        DAEMON_MODULE,
        "connectors.worker_daemon",
        When.INSTALLED,
        "Python workers are forked from a process that has loaded what they need. Only where this package is installed "
        "for the Python of every executor (an environment in --archives counts): elsewhere no worker would start.",
    ),
    SparkSetting(
        "spark.driver.host",
        "127.0.0.1",
        When.LOCAL,
        "Nobody else talks to a session of one machine.",
    ),
    SparkSetting("spark.driver.bindAddress", "127.0.0.1", When.LOCAL, "The same."),
    SparkSetting(
        "spark.sql.shuffle.partitions",
        "{cores}",
        When.LOCAL,
        "As many as there are cores: 200 tasks for a shuffle on one machine are 190 too many.",
    ),
    SparkSetting(
        "spark.sql.streaming.checkpointFileManagerClass",
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
        When.LOCAL_CHECKPOINT,
        "Saves 60 ms a micro-batch. It renames by exists() and rename(), which is safe only where one driver owns a "
        "checkpoint in a local folder.",
    ),
    SparkSetting(
        DELTA_JARS,
        "",
        When.DELTA,
        "Spark reads and writes Delta tables with these JARs: all that `make setup` has fetched; `rsm doctor` shows "
        "where. The jobs need none: they write Delta tables without the JVM.",
    ),
    SparkSetting(
        "spark.sql.extensions",
        "io.delta.sql.DeltaSparkSessionExtension",
        When.DELTA,
        "Delta's statements: MERGE, OPTIMIZE, VACUUM, time travel.",
    ),
    SparkSetting(
        "spark.sql.catalog.spark_catalog",
        "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        When.DELTA,
        "Tables of the catalog may be Delta tables.",
    ),
    SparkSetting(
        "spark.databricks.delta.snapshotPartitions",
        "2",
        When.LOCAL_DELTA,
        "Delta replays a table's log with 50 tasks by default.",
    ),
)


def chosen_settings(when: frozenset[When], *, core_count: int, jars: str) -> dict[str, str]:
    """Return the settings for some purposes, by their keys, in order.

    Args:
        when: The purposes; `When.ALWAYS` need not be named.
        core_count: Of this machine.
        jars: Value of `DELTA_JARS`.

    """
    wanted = when | {When.ALWAYS}
    cores = str(max(_CORES_MIN, core_count))
    return {
        setting.key: setting.value.replace("{cores}", cores) or jars
        for setting in SPARK_SETTINGS
        if setting.when in wanted
    }


_INTRODUCTION = """\
# Spark settings for the jobs of this project, and for programs of your own that read logs:
#
#     spark-submit --properties-file conf/spark-defaults.conf jobs/snapshot.py --log orders --lake /lake/snapshots
#
# Programs that call connectors.session.spark_session have all of it without this file. What you set here, by --conf or
# in the program wins. Written by `make conf` from connectors/spark_settings.py.
#
# Two things are no settings. PYSPARK_PYTHON (or spark.pyspark.python below) must name the interpreter that has this
# package, on the driver and on every executor, or its sources are not found by name. And where the directory that Spark
# is started in has a package connectors, rsm_spark or ledger of its own, PYTHONSAFEPATH=1 in the environment keeps that
# from hiding this one.
"""
_PYTHON = """\
# Which Python runs the driver, the executors and the look-up of sources by name.
# spark.pyspark.python  /home/me/rsm-spark/.venv/bin/python
"""

_PURPOSES = (
    (When.ALWAYS, "For every program."),
    (When.POOL, "For jobs/worker_pool.py."),
    (When.INSTALLED, "Where this package is installed on every executor; the builder sets it with a local master."),
    (When.LOCAL, "With a local master only."),
    (When.LOCAL_CHECKPOINT, "With a local master, for a stream whose checkpoint is in a local folder."),
    (When.DELTA, "Only where Spark itself reads or writes Delta tables."),
    (When.LOCAL_DELTA, "The same with a local master."),
)
_IN_FORCE = (When.ALWAYS, When.POOL)
_WIDTH = 118
_JARS_SHOWN = "/home/me/.cache/rsm-spark/jars/delta-spark_4.2_2.13-4.4.0.jar,…"


def defaults_file() -> str:
    """Return the text of `conf/spark-defaults.conf`: what is for some programs only is there, but commented out."""
    blocks = [_INTRODUCTION, _PYTHON]
    for when, title in _PURPOSES:
        lines = [f"# ---- {title}"]
        mark = "" if when in _IN_FORCE else "# "
        for setting in (one for one in SPARK_SETTINGS if one.when == when):
            value = setting.value.replace("{cores}", "8") or _JARS_SHOWN
            lines += ["", *_commented(setting.why), f"{mark}{setting.key}  {value}"]
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks)


def _commented(text: str) -> list[str]:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + 1 + len(word) > _WIDTH - 2:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return [f"# {line}" for line in lines]
