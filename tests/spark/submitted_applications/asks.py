"""Asks a warm server, and says with what it was called, under which settings, and what another one has left there."""

import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

spark: Any = SparkSession.builder.getOrCreate()
count = spark.range(100).selectExpr("sum(id)").first()[0]
answered_s = time.time()


def brought(value):
    """Return what the module says that this application, or another one, has brought along."""
    try:
        return importlib.import_module("brought_along").VALUE + value
    except ImportError:
        return -1


def seen():
    return [row[0] for row in spark.range(1).mapInPandas(_call, "value long").collect()]


def _call(batches):
    for batch in batches:
        yield batch.assign(value=batch["id"].map(brought))[["value"]]


before = [*seen(), spark.catalog.tableExists("mine")]
spark.range(1).createOrReplaceTempView("mine")
module = Path(os.environ["TMPDIR"]) / "brought_along.py"
module.write_text("VALUE = 7\n")
spark.addArtifacts(str(module), pyfile=True)
print(
    json.dumps(
        {
            "args": sys.argv[1:],
            "count": count,
            "kind": type(spark).__module__,
            "address": os.environ["SPARK_REMOTE"].removeprefix("sc://").split("/")[0],
            "session": spark.session_id,
            "partitions": spark.conf.get("spark.sql.shuffle.partitions"),
            "task": spark.conf.get("spark.rsm.task"),
            "run": [os.environ["RSM_ASSIGNMENT_ID"], spark.conf.get("spark.rsm.assignment")],
            "before": before,
            "after": seen(),
            "answered_s": answered_s,
        }
    )
)
print("that was all", file=sys.stderr)
spark.stop()
