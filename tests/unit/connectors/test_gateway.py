"""Spark's JVM is started without running Python in a forked child."""

from __future__ import annotations

import subprocess
from typing import Any

import pyspark.java_gateway

from connectors.gateway import spawned_gateway


def _started_by_pyspark() -> Any:
    return vars(pyspark.java_gateway)["Popen"]


def test_what_is_started_runs_nothing_of_ours_and_does_not_hear_of_an_interrupt() -> None:
    def never() -> None:
        raise AssertionError("run in the child")

    with spawned_gateway():
        started = _started_by_pyspark()(
            ["/bin/sh", "-c", 'kill -INT $$; echo "$1"', "sh", "goes on"], stdout=subprocess.PIPE, preexec_fn=never
        )
        said, _ = started.communicate(timeout=60)
    assert (started.returncode, said) == (0, b"goes on\n")


def test_pyspark_is_left_as_it_was() -> None:
    before = _started_by_pyspark()
    with spawned_gateway():
        assert _started_by_pyspark() is not before
    assert _started_by_pyspark() is before
