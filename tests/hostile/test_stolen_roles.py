"""Callers with a credential of their own who want more: a worker's and a tenant's token, an impostor of a worker."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import grpc
import pytest

from broker.machine.commands import BrokerCommand, DeployCode, SetHold, TaskSpec
from broker.machine.messages import encode
from broker.machine.policies import WorkerOffer
from broker.machine.queries import BrokerQuery, GetTask, ListTasks
from broker.server.service import BrokerService
from ledger.dev import DevCluster
from rsm_spark.core.commands import AnswerStatus
from rsm_spark.errors import AccessDeniedError
from rsm_spark.transport import store_pb2
from rsm_spark.transport.codec import CALL_METHOD, decode_answers
from rsm_spark.transport.peer_codec import DOWNLOAD_METHOD, LIST_METHOD, REPORT_METHOD, encode_list
from rsm_spark.transport.security import RpcChannel, Security
from tests.hostile.victim import Victim, Work
from tests.integration.broker_hands import Hands, broker_settings, leading, submit, until
from tests.unit.rsm_spark.transport.rights_stand import code_of, entry, opened, principals, shown_by

DENIED = grpc.StatusCode.PERMISSION_DENIED
_CONNECTS = 5
_CALLS, _ROUND = 50, 28
OFFER = WorkerOffer(threads_by_type={"mail": 10}, threads_max=10, groups=(1,))


def _principals(folder: Path) -> str:
    workers = [entry(name, "worker", 'types = ["mail"]\ngroups = [1]') for name in ("w1", "w2")]
    map_client = entry("map-client", "client", 'access = "write"')
    return principals(folder, *workers, map_client)


def _message(log: str, what: BrokerCommand | BrokerQuery, *, is_query: bool) -> bytes:
    """One command, the first of a session, or one query."""
    asked = {"queries": [encode(what)]} if is_query else {"commands": [encode(what)], "sequences": [1]}
    message = store_pb2.Requests(message_id=1, log=log, session=b"s" * 16, open_session=not is_query, **asked)
    return message.SerializeToString()


async def _work(broker: BrokerService, hands: Hands) -> None:
    """One task of the victim: submitted, run by the honest worker, ended."""
    before = set(hands.assigned)
    (task_id,) = await submit(broker, TaskSpec("mail"))
    await until(lambda: set(hands.assigned) - before)
    (run,) = [hands.assigned[number] for number in set(hands.assigned) - before]
    assert run.task_id == task_id
    await hands.end(run)


@pytest.mark.asyncio
async def test_a_token_of_one_role_opens_no_door_of_another_and_nobody_takes_a_workers_name(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    settings = broker_settings(unique_name, tmp_path, security=Security(principals=_principals(tmp_path)))
    async with leading(cluster.metadata_uri, settings) as broker:
        honest = Hands("w1", OFFER, shown_by(tmp_path, "w1"))
        await honest.serve(broker.address)
        work, victim = Work(), Victim(lambda: _work(broker, honest), servers=[os.getpid()])
        quiet = await victim.run(_CALLS)
        stop = asyncio.Event()
        refused: list[str] = []
        rounds: list[int] = []

        async def attack() -> None:
            while not (stop.is_set() and rounds):
                for role in ("w2", "tenant", "auditor", "map-client"):
                    async with opened(broker.address, shown_by(tmp_path, role)) as channel:
                        await _try_everything(channel, unique_name, role, refused)
                    work.add(len(refused) - work.units)
                for name in ("w2", "tenant", "map-client", "operator"):
                    for _ in range(_CONNECTS):  # On a busy machine a connection may take longer than it may.
                        impostor = Hands("w1", OFFER, shown_by(tmp_path, name))
                        await impostor.connect(broker.address)
                        await until(lambda impostor=impostor: impostor.lost is not None)
                        assert not impostor.received
                        await impostor.leave()
                        if isinstance(impostor.lost, AccessDeniedError):
                            break
                    assert isinstance(impostor.lost, AccessDeniedError), impostor.lost
                    refused.append(f"{name} as w1")
                    work.add()
                rounds.append(1)

        attacker = asyncio.get_running_loop().create_task(attack())
        work.ends_with(attacker)
        attacked = await victim.run(_CALLS, beside=work, units=_ROUND)
        stop.set()
        await attacker
        assert len(set(refused)) >= 20
        assert broker.audit.refusals >= len(refused), "the audit counts what gRPC refuses"
        attacked.assert_goes_on_like(quiet, units_per_call=100)
        assert honest.lost is None
        second = Hands("w1", OFFER, shown_by(tmp_path, "w1"))  # Its own credential may take its own place.
        await second.serve(broker.address)
        await _work(broker, second)  # Nobody has held or changed anything.
        for hands in (second, honest):
            await hands.leave()


async def _try_everything(channel: RpcChannel, log: str, role: str, refused: list[str]) -> None:
    commands: dict[str, Any] = {"SetHold": SetHold("t", ""), "DeployCode": DeployCode("evil", b"x", "0" * 64)}
    for what, command in commands.items():
        text = _message(log, command, is_query=False)
        if role == "auditor":  # It reads all, and what it writes is answered: no.
            answers = decode_answers(await channel.unary_unary(CALL_METHOD)(text, timeout=60))
            assert answers.statuses[-1] == AnswerStatus.REFUSED
            assert b"reads only" in answers.payloads[-1]
        else:
            assert (await code_of(channel, CALL_METHOD, request=text))[0] is DENIED, (role, what)
        refused.append(f"{role}: {what}")
    reads = {
        "ListTasks": (CALL_METHOD, _message(log, ListTasks("t"), is_query=True)),
        "GetTask": (CALL_METHOD, _message(log, GetTask("t", 1), is_query=True)),
        "snapshots": (LIST_METHOD, encode_list(log)),
        "download": (DOWNLOAD_METHOD, b""),
        "report": (REPORT_METHOD, b""),
    }
    for what, (method, text) in reads.items():
        if role == "auditor" and what != "report":
            continue
        assert (await code_of(channel, method, request=text))[0] is DENIED, (role, what)
        refused.append(f"{role}: {what}")
