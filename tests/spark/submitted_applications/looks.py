"""Looks at what it should not see, and tells what it has got."""

import json
import os
import signal
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def tried(what):
    try:
        return str(what())[:200]
    except Exception as error:
        return f"{type(error).__name__}"


spark = SparkSession.builder.getOrCreate()
secret, victim, written = sys.argv[1:4]
read_by_java = spark._jvm.java.nio.file.Files.readString
print(
    json.dumps(
        {
            "python": tried(lambda: Path(secret).read_text()),
            "java": tried(lambda: read_by_java(spark._jvm.java.nio.file.Paths.get(secret, []))),
            "signal": tried(lambda: os.kill(int(victim), signal.SIGTERM)),
            "write": tried(lambda: Path(written).write_text("here")),
            "environment": tried(lambda: Path(f"/proc/{os.getppid()}/environ").read_bytes().count(b"of_the_worker")),
            "variable": os.environ.get("RSM_SECRET", ""),
        }
    )
)
spark.stop()
