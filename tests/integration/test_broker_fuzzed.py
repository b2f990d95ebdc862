"""A broker whose workers say anything: it refuses, it serves the others, its state stays whole."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import grpc
import pytest

from broker.machine.commands import TaskSpec
from broker.machine.statuses import TaskStatus
from broker.machine.views import TaskView
from broker.wire import worker_pb2 as pb
from broker.wire.worker_codec import WORK_METHOD
from ledger.dev import DevCluster
from rsm_spark.runtime.status import ReplicaRole
from rsm_spark.transport.security import RpcChannel, Security, open_channel
from tests.integration.broker_hands import Hands, broker_settings, leading, submit

pytestmark = pytest.mark.asyncio

_NAMES = ("w0", "w1", "good", "", "x" * 200, "x" * 201, "a,b", "\x00", "ü" * 100)
_NUMBERS = (0, 1, 2, 7, -1, 2**31 - 1, 2**63 - 1, -(2**63), 100_000)


class _Babbler:
    """Makes messages that are nearly right."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def number(self) -> int:
        return self.rng.choice(_NUMBERS) if self.rng.random() < 0.5 else self.rng.randrange(1, 60)

    def small(self) -> int:
        return max(-(2**31), min(2**31 - 1, self.number()))

    def counts(self) -> list[pb.Count]:
        return [pb.Count(name=self.rng.choice(_NAMES), amount=self.number()) for _ in range(self.rng.randrange(3))]

    def offer(self) -> pb.Offer:
        offer = pb.Offer(
            threads_max=self.rng.choice((0, 1, 5, self.small())),
            threads_by_type=self.counts(),
            groups=[self.small() for _ in range(self.rng.randrange(3))] or [0],
            excluded_groups=[self.small() for _ in range(self.rng.randrange(2))],
            resources=self.counts(),
            tenant_share_percent=self.rng.choice((0, 0, 50, 100, 101, -1)),
        )
        if self.rng.random() < 0.3:
            offer.any_type_threads = self.small()
        return offer

    def runs(self) -> list[pb.Run]:
        return [pb.Run(task_id=self.number(), assignment_id=self.number()) for _ in range(self.rng.randrange(4))]

    def ended(self) -> list[pb.Ended]:
        rng = self.rng
        return [
            pb.Ended(
                task_id=self.number(), assignment_id=self.number(), status=rng.choice((2, 4, 7, 7, 1, 99)),
                outcome=rng.choice(("", "failed", "nonsense", "x" * 300)), error=rng.choice(("", "E: e", "x" * 5000)),
                result=bytes(rng.choice((0, 10, 1000))),
            )
            for _ in range(rng.randrange(3))
        ]  # fmt: skip

    def progress(self) -> list[pb.Progress]:
        rng = self.rng
        return [
            pb.Progress(
                task_id=self.number(), assignment_id=self.number(),
                fraction=rng.choice((0.0, 0.5, 1.0, -1.0, 2.0, float("nan"))), message=rng.choice(_NAMES),
            )
            for _ in range(rng.randrange(3))
        ]  # fmt: skip

    def hello(self) -> pb.Hello:
        rng = self.rng
        return pb.Hello(
            worker_id=rng.choice(_NAMES[:2] if rng.random() < 0.7 else _NAMES[3:]),
            incarnation=rng.choice(("0" * 32, "1" * 32, "f" * 32, "F" * 32, "", f"{rng.getrandbits(128):032x}")),
            location=rng.choice(_NAMES),
            offer=self.offer(),
            delivered_up_to=self.number(),
            held=self.runs(),
            ended=self.ended(),
            leader_epoch=rng.choice((0, 0, 1, -1, 2**40)),
            stream=self.number(),
        )

    def message(self, *, is_first: bool) -> bytes:
        rng = self.rng
        fields: dict[str, Any] = {"ended": self.ended(), "progress": self.progress(), "ping": self.number()}
        if is_first if rng.random() < 0.95 else not is_first:
            fields["hello"] = self.hello()
        if rng.random() < 0.2:
            fields["offer"] = self.offer()
        fields["draining"], fields["leaving"] = rng.random() < 0.1, rng.random() < 0.1
        text = bytearray(pb.WorkerMessage(**fields).SerializeToString())
        if text and rng.random() < 0.1:
            text[rng.randrange(len(text))] = rng.randrange(256)
        return bytes(text[: rng.randrange(len(text) + 1)] if rng.random() < 0.05 else text)


async def _babble(channel: RpcChannel, seed: int) -> grpc.StatusCode | None:
    """Open a stream and say things; return how the broker ended it, None if it did not."""
    babbler = _Babbler(seed)
    stream = channel.stream_stream(WORK_METHOD)()
    try:
        for number in range(babbler.rng.randrange(1, 8)):
            await stream.write(babbler.message(is_first=number == 0))
            if babbler.rng.random() < 0.3:
                async with asyncio.timeout(0.05):
                    await stream.read()
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError):
        pass
    code: grpc.StatusCode | None = await stream.code() if stream.done() else None
    if code is grpc.StatusCode.INTERNAL and "from Core" in await stream.details():
        code = None  # gRPC's own word, on this side, for a write to a stream that ends at this moment.
    stream.cancel()
    return code


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5))])
async def test_whatever_workers_say_the_broker_serves_the_others_and_its_state_stays_whole(
    cluster: DevCluster, unique_name: str, tmp_path: Path, seed: int
) -> None:
    async with leading(cluster.metadata_uri, broker_settings(unique_name, tmp_path)) as broker:
        good = Hands("good")
        await good.serve(broker.address)
        ids = await submit(broker, *[TaskSpec("mail", max_attempts=1)] * 20)
        channel = open_channel(broker.address, Security())
        codes: set[grpc.StatusCode | None] = set()
        for first in range(0, 200, 20):
            said = await asyncio.gather(*(_babble(channel, seed * 1_000 + first + one) for one in range(20)))
            codes.update(said)
        await channel.close()
        assert grpc.StatusCode.INVALID_ARGUMENT in codes
        assert not codes & {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN}
        ids += await submit(broker, *[TaskSpec("mail", max_attempts=1)] * 5)
        async with asyncio.timeout(60):
            for task_id in ids:
                while True:
                    shown = await broker.wait_task("t", task_id, 0.05)
                    assert isinstance(shown, TaskView)
                    if shown.status in {TaskStatus.FINISHED, TaskStatus.ERROR, TaskStatus.CANCELLED}:
                        break
                    if good.lost is not None:
                        await good.serve(broker.address)
                    await good.end(*(good.assigned[one] for one in list(good.held)))
                    if shown.status == TaskStatus.RUNNING and shown.worker_id != "good":
                        break  # A babbler has it, until its lease is over.
        broker.machine.validate()
        assert broker.replica.role is ReplicaRole.LEADER
        assert broker.replica._context.machine_failures == 0
        await good.leave()
