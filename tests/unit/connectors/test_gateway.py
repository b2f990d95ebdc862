"""Spark's JVM is started without running Python in a forked child."""

from __future__ import annotations

import subprocess

import pyspark.java_gateway

from connectors.gateway import spawned_gateway


def test_what_is_started_runs_nothing_of_ours_and_does_not_hear_of_an_interrupt() -> None:
    def never() -> None:
        raise AssertionError("run in the child")

    with spawned_gateway():
        started = pyspark.java_gateway.Popen(
            ["/bin/sh", "-c", 'kill -INT $$; echo "$1"', "sh", "goes on"], stdout=subprocess.PIPE, preexec_fn=never
        )
        said, _ = started.communicate(timeout=30)
    assert (started.returncode, said) == (0, b"goes on\n")


def test_pyspark_is_left_as_it_was() -> None:
    before = pyspark.java_gateway.Popen
    with spawned_gateway():
        assert pyspark.java_gateway.Popen is not before
    assert pyspark.java_gateway.Popen is before
