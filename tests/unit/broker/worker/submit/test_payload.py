"""What a payload of an application may say: bounds, settings on the list, and nothing that is the worker's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.worker.context import TaskError
from broker.worker.submit.payload import read_application
from broker.worker.submit.settings import PLAIN_CONF


def _read(allowed: tuple[str, ...] = PLAIN_CONF, **payload: object) -> object:
    return read_application(json.dumps(payload).encode(), allowed)


def test_arguments_and_settings_are_read() -> None:
    found = read_application(b'{"args": ["--day", "1"], "conf": {"spark.sql.shuffle.partitions": 8}}', PLAIN_CONF)
    assert (found.args, found.conf) == (["--day", "1"], {"spark.sql.shuffle.partitions": 8})
    assert read_application(b"", PLAIN_CONF).args == []


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ({"master": "local"}, "unknown field"),
        ({"args": "one"}, "Expected `array`"),
        ({"args": ["x"] * 501}, "501 arguments"),
        ({"args": ["x" * 70_000]}, "70,000 bytes"),
        ({"args": ["a\nb"]}, "control characters"),
        ({"args": ["a\0b"]}, "control characters"),
        ({"args": ["\ud800"]}, "none, such as"),
        ({"conf": {"--deploy-mode": "client"}}, "no name of a setting"),
        ({"conf": {"spark.a=b --class": "x"}}, "no name of a setting"),
        ({"conf": {"spark.sql.session.timeZone": "${env:HOME}"}}, "say the value"),
        ({"conf": {"spark.sql.session.timeZone": "UTC\n--class"}}, "control characters"),
        ({"conf": {"spark.executor.memory": "900g"}}, "not on this worker's list"),
    ],
)
def test_what_is_odd_is_refused_in_words(payload: dict[str, Any], said: str) -> None:
    with pytest.raises(TaskError, match=said):
        _read(**payload)


@pytest.mark.parametrize(
    "name",
    [
        "spark.driver.extraJavaOptions",
        "spark.executor.defaultJavaOptions",
        "spark.driver.extraClassPath",
        "spark.jars",
        "spark.jars.packages",
        "spark.files",
        "spark.archives",
        "spark.plugins",
        "spark.extraListeners",
        "spark.sql.extensions",
        "spark.sql.catalog.x",
        "spark.executorEnv.LD_PRELOAD",
        "spark.pyspark.python",
        "spark.yarn.keytab",
        "spark.kubernetes.driver.podTemplateFile",
        "spark.hadoop.fs.s3a.secret.key",
        "spark.authenticate.secret",
        "spark.eventLog.dir",
        "spark.redaction.regex",
        "spark.driver.resource.gpu.discoveryScript",
        "spark.r.command",
        "spark.sql.warehouse.dir",
        "spark.metrics.conf.driver.sink.csv.class",
    ],
)
def test_no_star_opens_what_reaches_far_and_a_full_name_does(name: str) -> None:
    with pytest.raises(TaskError, match="not on this worker's list"):
        _read(("spark.*", "*"), conf={name: "x"})
    _read((name,), conf={name: "x"})


@pytest.mark.parametrize(
    "name",
    [
        "spark.master",
        "spark.submit.deployMode",
        "spark.submit.pyFiles",
        "spark.remote",
        "spark.ui.port",
        "spark.app.name",
        "spark.rsm.task",
        "spark.driver.host",
        "SPARK.MASTER".lower(),
        "spark.Master",
    ],
)
def test_what_the_worker_says_is_not_taken_from_a_payload_whatever_the_list_says(name: str) -> None:
    with pytest.raises(TaskError, match="the worker's to set"):
        _read((name, "*"), conf={name: "x"})


def test_a_star_covers_plain_settings() -> None:
    _read(("spark.executor.*",), conf={"spark.executor.memory": "1g", "spark.executor.cores": 2})
