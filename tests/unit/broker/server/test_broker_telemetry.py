"""What a broker tells Prometheus of tasks, while time passes in which nothing is logged."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.machine import commands as c
from broker.machine.policies import WorkerOffer
from broker.server.telemetry import BrokerTelemetry
from tests.unit.broker.machine.driven_broker import START_MS, DrivenBroker
from tests.unit.rsm_spark.server.test_probes import STATUS, Stand


@pytest.mark.parametrize(("passed_s", "told_s"), [(-5.0, 2.0), (2.0, 2.0), (5_000.0, 5_000.0)])
def test_a_task_that_waits_grows_older_though_nothing_is_logged(passed_s: float, told_s: float) -> None:
    """Passed by the process's own clock; a clock that is behind logged time counts for nothing."""
    broker = DrivenBroker()
    broker.appear(offer=WorkerOffer(1))
    broker.submit(c.TaskSpec("mail"))
    broker.now_ms += 2_000
    broker.submit(c.TaskSpec("mail"))
    replica: Any = Stand(STATUS)
    replica.revision = broker.revision
    registry: Any = SimpleNamespace(dispatched=0, undelivered=0, reports=0)
    streams: Any = SimpleNamespace(stream_count=0, messages=0, refused_count=0)
    telemetry = BrokerTelemetry(replica, broker.machine, registry, streams, clock_s=lambda: START_MS / 1000 + passed_s)
    families = text_string_to_metric_families(asyncio.run(telemetry.text()).decode())
    told = [
        one.value for family in families for one in family.samples if one.name == "rsm_broker_oldest_waiting_seconds"
    ]
    assert told == [told_s]
