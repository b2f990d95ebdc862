"""Workers that are bound to tenants: tasks and code of others do not come to them, whatever they say or ask."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path

import grpc
import pytest

from broker.machine.commands import DeployCode, SetTenant, TaskSpec
from broker.machine.policies import TenantPolicy, WorkerOffer
from broker.machine.queries import ExplainTask
from broker.machine.replies import Done
from broker.machine.views import ExplanationView
from broker.server.service import BrokerService
from broker.wire.worker_codec import DOWNLOAD_METHOD, encode_code_request
from ledger.dev import DevCluster
from rsm_spark.cli.log_requests import place_order
from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.log.admin_requests import RaiseFormatRequest
from rsm_spark.transport.security import Security
from tests.hostile.victim import Victim, Work
from tests.integration.broker_hands import Hands, broker_settings, leading, submit, until
from tests.unit.rsm_spark.transport.rights_stand import code_of, entry, opened, principals, shown_by

OK, DENIED = grpc.StatusCode.OK, grpc.StatusCode.PERMISSION_DENIED
pytestmark = pytest.mark.asyncio
_CALLS = 50


def _principals(folder: Path, *, of_acme: str = "acme") -> str:
    return principals(
        folder, entry("of-acme", "worker", f'tenants = ["{of_acme}"]'), entry("of-bolt", "worker", 'tenants = ["bolt"]')
    )


async def _raise_format(cluster: DevCluster, log: str) -> None:
    answer = await place_order(log, RaiseFormatRequest(None), 20.0, cluster.metadata_uri, DEFAULT_RSM_ROOT)
    assert answer["format_level"] >= 2


async def _deploy(broker: BrokerService, code: str) -> None:
    archive = code.encode() * 100
    assert isinstance(await broker.execute(DeployCode(code, archive, hashlib.sha256(archive).hexdigest())), Done)


async def _one_task(broker: BrokerService, hands: Hands, tenant: str) -> None:
    before = set(hands.assigned)
    await submit(broker, TaskSpec("mail"), tenant=tenant)
    await until(lambda: set(hands.assigned) - before)
    (number,) = set(hands.assigned) - before
    await hands.end(hands.assigned[number])


async def test_a_worker_bound_to_a_tenant_gets_nothing_of_another_and_that_one_is_told_why_it_waits(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    settings = broker_settings(unique_name, tmp_path, security=Security(principals=_principals(tmp_path)))
    async with leading(cluster.metadata_uri, settings) as broker:
        await _raise_format(cluster, unique_name)
        hands = Hands("of-acme", WorkerOffer(20), shown_by(tmp_path, "of-acme"))
        await hands.serve(broker.address)
        (foreign,) = await submit(broker, TaskSpec("mail"), tenant="bolt")
        own = await submit(broker, *[TaskSpec("mail")] * 3, tenant="acme")
        assert {run.task_id for run in await hands.take(3)} == set(own)
        await hands.say(offer=WorkerOffer(30))  # Another offer is bound as the first one was.
        own += await submit(broker, TaskSpec("mail"), tenant="acme")
        assert {run.task_id for run in await hands.take(4)} == set(own)
        why, _ = await broker.query(ExplainTask("bolt", foreign))
        assert isinstance(why, ExplanationView)
        assert why.reason == "no-worker"
        assert "may run tasks of tenant bolt" in why.text
        other = Hands("of-bolt", WorkerOffer(20), shown_by(tmp_path, "of-bolt"))
        await other.serve(broker.address)
        assert [run.task_id for run in await other.take(1)] == [foreign]
        assert {run.tenant for run in hands.assigned.values()} == {"acme"}
        _principals(tmp_path, of_acme="core")  # Its entry changes while it works.
        await until(lambda: hands.lost is not None)
        await hands.serve(broker.address)
        run = next(iter(hands.assigned.values()))
        await hands.end(run)
        await until(lambda: run.assignment_id in hands.acknowledged)
        (late,) = await submit(broker, TaskSpec("mail"), tenant="acme")
        why, _ = await broker.query(ExplainTask("acme", late))
        assert isinstance(why, ExplanationView)
        assert why.reason == "no-worker"
        (theirs,) = await submit(broker, TaskSpec("mail"), tenant="core")
        await until(lambda: any(run.task_id == theirs for run in hands.assigned.values()))
        for one in (hands, other):
            await one.leave()


async def test_a_worker_gets_the_code_of_its_own_runs_alone(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    settings = broker_settings(unique_name, tmp_path, security=Security(principals=_principals(tmp_path)))
    async with leading(cluster.metadata_uri, settings) as broker:
        await _raise_format(cluster, unique_name)
        for code in ("mailer", "secret"):
            await _deploy(broker, code)
        assert isinstance(await broker.execute(SetTenant("acme", TenantPolicy(codes=("mailer",)))), Done)
        hands = Hands("of-acme", WorkerOffer(20), shown_by(tmp_path, "of-acme"))
        thief = Hands("of-bolt", WorkerOffer(20), shown_by(tmp_path, "of-bolt"))
        for one in (hands, thief):
            await one.serve(broker.address)
        await submit(broker, TaskSpec("call", code="mailer", mode="main:run"), tenant="acme")
        (run,) = await hands.take(1)
        work, victim = Work(), Victim(lambda: _one_task(broker, hands, "acme"), servers=[os.getpid()])
        quiet = await victim.run(_CALLS)
        stop = asyncio.Event()
        refused: list[str] = []

        async def steal() -> None:
            async with opened(broker.address, shown_by(tmp_path, "of-bolt")) as channel:
                while not (stop.is_set() and refused):
                    for code in ("mailer", "secret", "nothing"):
                        seen, why = await code_of(channel, DOWNLOAD_METHOD, request=encode_code_request(code, 0))
                        assert seen is DENIED, (seen, why)
                        assert "of its own runs alone" in why
                        refused.append(code)
                        work.add()

        attacker = asyncio.get_running_loop().create_task(steal())
        work.ends_with(attacker)
        attacked = await victim.run(_CALLS, beside=work, units=30)
        stop.set()
        await attacker
        attacked.assert_goes_on_like(quiet, units_per_call=500)
        assert broker.audit.refusals >= len(refused)
        async with opened(broker.address, shown_by(tmp_path, "of-acme")) as channel:

            async def asked(code: str) -> grpc.StatusCode:
                return (await code_of(channel, DOWNLOAD_METHOD, request=encode_code_request(code, 0)))[0]

            assert (await asked("mailer"), await asked("secret")) == (OK, DENIED)
            await hands.end(run)
            await until(lambda: run.assignment_id in hands.acknowledged)
            assert await asked("mailer") is DENIED
        for one in (hands, thief):
            await one.leave()
