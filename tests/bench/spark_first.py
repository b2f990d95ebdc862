"""The first query of a program, which must start Spark, workers and what reads the log; each in a process of its own.

`python -m tests.bench.spark_first FORMAT '{"option": "value"}'` is such a program: it prints its times as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import NamedTuple

from connectors.session import spark_session


class FirstTimes(NamedTuple):
    """Seconds of one program.

    Attributes:
        start_s: From the first line of the program, with all modules imported, until it has a session.
        first_s: The first query: all rows, into nothing.
        second_s: The same again.

    """

    start_s: float
    first_s: float
    second_s: float


def measure_first(source: str, options: Mapping[str, str]) -> FirstTimes:
    """Run a program that reads from a source of Spark."""
    command = [sys.executable, "-m", "tests.bench.spark_first", source, json.dumps(dict(options))]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=600).stdout  # noqa: S603 - our own program
    return FirstTimes(*json.loads(told))


def main() -> None:
    """Measure in this process."""
    source, options = sys.argv[1], json.loads(sys.argv[2])
    times = [time.perf_counter()]
    spark = spark_session("first", delta=False, local="local[2]", conf={"spark.ui.enabled": "false"})
    times.append(time.perf_counter())
    for _ in range(2):
        spark.read.format(source).options(**options).load().write.format("noop").mode("overwrite").save()
        times.append(time.perf_counter())
    spark.stop()
    sys.stdout.write(json.dumps([after - before for before, after in zip(times, times[1:], strict=False)]))


if __name__ == "__main__":
    main()
