"""The second act: two airlines share three workers of a task broker; a weight is changed live, the leader killed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec

from broker.client.client import AsyncBrokerClient
from broker.client.task import NewTask
from rsm_demo.airline_work import AIRLINES, TASK_TYPE, account, airline_work, runs_noted
from rsm_demo.child import ChildFailedError
from rsm_demo.flights import airline_flights
from rsm_demo.screen import Screen
from rsm_demo.shares import assignments, newest_assignment, share_ratio
from rsm_demo.stack import BROKERS, TASK_LOG, WORKER_THREADS, WORKERS, Stack
from rsm_demo.tenant_counts import TICK_S, TenantCounts

_ACT_S_MAX = 300.0
_READERS = 8
_CHANGE_AT = 0.25
_KILL_AT = 0.55
_FAVOURED, _WEIGHT = AIRLINES[0], 3.0
_SHARE_TOLERANCE = 0.25


class TaskOutcome(msgspec.Struct):
    """Part of the last JSON line about the tasks.

    Attributes:
        ok: Everything below is as it has to be.
        tasks: Submitted, and finished.
        seconds: From the last worker's start to the last end.
        ratio_before: Tasks of the first airline that workers were given for each of the second, at equal weights.
        ratio_after: The same once the first has weight 3.
        failover_s: From the kill of the leading broker to the next end that anybody can see.
        never_ran: Tasks that no run has noted.
        ran_twice: Tasks that more than one run has noted.
        results_equal: The results add up to what the CSV says, for both airlines.

    """

    ok: bool
    tasks: int
    seconds: float
    ratio_before: float
    ratio_after: float
    failover_s: float
    never_ran: int
    ran_twice: int
    results_equal: bool


class TaskAct:
    """One run of it.

    Args:
        stack: The processes; bookies run.
        screen: Where to show it.
        tell: Called with what happened.

    """

    def __init__(self, stack: Stack, screen: Screen, tell: Callable[[str], None]) -> None:
        self._stack = stack
        self._tell = tell
        self._counts = TenantCounts(screen)

    async def run(self) -> TaskOutcome:
        """Run to the end; the processes are left to the caller."""
        self._tell(f"starting {len(BROKERS)} task brokers")
        await asyncio.gather(*(self._stack.start_broker(name) for name in BROKERS))
        client = await self._client("")  # The administrator's view: of all tenants.
        others = {airline: await self._client(airline) for airline in AIRLINES}
        try:
            return await self._play(client, others)
        finally:
            await asyncio.gather(client.close(), *(one.close() for one in others.values()))

    async def _client(self, tenant: str) -> AsyncBrokerClient:
        return await AsyncBrokerClient.connect(metadata_uri=self._stack.metadata_uri, log=TASK_LOG, tenant=tenant)

    async def _play(self, client: AsyncBrokerClient, tenants: dict[str, AsyncBrokerClient]) -> TaskOutcome:
        ids = dict(zip(tenants, await asyncio.gather(*map(self._submit, tenants, tenants.values())), strict=True))
        total = sum(map(len, ids.values()))
        self._tell(f"{total:,} tasks of {len(AIRLINES)} airlines are submitted, their weights are equal")
        # The workers come now: whose tasks were there first would count otherwise.
        self._tell(f"starting {len(WORKERS)} workers of {WORKER_THREADS} threads")
        await self._stack.start_workers()
        began = time.monotonic()
        await self._until(client, _CHANGE_AT, total)
        first = await newest_assignment(tenants)
        await client.change_tenant(_FAVOURED, weight=_WEIGHT)
        self._tell(f"live: {_FAVOURED} has weight {_WEIGHT:g} from now on, for tasks that wait already too")
        second = await newest_assignment(tenants)
        await self._until(client, _KILL_AT, total)
        third = await newest_assignment(tenants)
        failover_s = await self._kill_leader(client)
        await self._until(client, 1.0, total)
        seconds = time.monotonic() - began
        self._tell(f"all {total:,} tasks have finished")
        results_equal = await self._check_results(ids, tenants)
        runs = await asyncio.to_thread(runs_noted, self._stack.runs)
        never = sum(not runs[task_id] for some in ids.values() for task_id in some)
        given = await assignments(tenants, ids)
        before, after = (
            share_ratio(given, airlines=AIRLINES, after=begin, up_to=end)
            for begin, end in ((0, first), (second, third))
        )
        fair = all(abs(ratio / wanted - 1) <= _SHARE_TOLERANCE for ratio, wanted in ((before, 1.0), (after, _WEIGHT)))
        return TaskOutcome(
            ok=fair and not never and results_equal,
            tasks=total,
            seconds=round(seconds, 2),
            ratio_before=round(before, 2),
            ratio_after=round(after, 2),
            failover_s=round(failover_s, 2),
            never_ran=never,
            ran_twice=sum(count > 1 for count in runs.values()),
            results_equal=results_equal,
        )

    async def _submit(self, airline: str, client: AsyncBrokerClient) -> list[int]:
        work = await asyncio.to_thread(airline_work, airline)
        submitted = await client.submit_many(NewTask(TASK_TYPE, one.payload()) for one in work)
        return list(submitted.task_ids)

    async def _until(self, client: AsyncBrokerClient, share: float, total: int) -> None:
        """Look on until so many tasks have ended."""
        deadline = time.monotonic() + _ACT_S_MAX
        while self._counts.ended < share * total:
            if time.monotonic() > deadline:
                raise ChildFailedError(f"the tasks took longer than {_ACT_S_MAX:.0f} s: see {self._stack.log_dir}")
            await asyncio.sleep(TICK_S)
            await self._counts.look(client)

    async def _kill_leader(self, client: AsyncBrokerClient) -> float:
        """Kill the leading broker; return the seconds until an end after it is seen, and start it again."""
        leader = (await client.status()).replica_id
        self._stack.brokers[leader].kill()
        killed_at = time.monotonic()
        self._tell(f"kill -9 of the leading broker, {leader}")
        ended = self._counts.ended
        seen = ended
        while seen <= ended + len(WORKERS) * WORKER_THREADS:  # Those that ran when it died are reported to the next.
            await self._counts.look(client)
            seen = self._counts.ended
            if time.monotonic() - killed_at > _ACT_S_MAX:
                raise ChildFailedError(f"no task ended after {leader} was killed: see {self._stack.log_dir}")
        seconds = time.monotonic() - killed_at
        self._tell(f"the other broker leads, and tasks go on after {seconds:.2f} s")
        await self._stack.brokers[leader].stop()
        await self._stack.start_broker(leader)
        return seconds

    async def _check_results(self, ids: dict[str, list[int]], tenants: dict[str, AsyncBrokerClient]) -> bool:
        """Return whether the tasks' results add up to the CSV, airline by airline."""
        room = asyncio.Semaphore(_READERS)

        async def _result(client: AsyncBrokerClient, task_id: int) -> bytes:
            async with room:
                return await client.result(task_id)

        for airline, client in tenants.items():
            results = await asyncio.gather(*(_result(client, task_id) for task_id in ids[airline]))
            plain = [delay for _, _, _, delay in await asyncio.to_thread(lambda: list(airline_flights((airline,))))]  # noqa: B023
            if account(results) != (len(plain), sum(plain)):
                return False
        return True
