"""A take-over by a replica whose state is not of the log's history: the cluster was set back, its disk was not."""

from __future__ import annotations

import msgspec
import pytest

from rsm_spark.errors import ForkedLogError
from rsm_spark.testing.ledger_world import LedgerTwin
from tests.unit.rsm_spark.runtime.log_world import LogWorld, run


def _set_back(twin: LedgerTwin, count: int) -> None:
    """Leave so many entries in a ledger."""
    twin.entries = twin.entries[:count]
    twin.stored, twin.kept = min(twin.stored, count), min(twin.kept, count)
    twin.header_lac, twin.explicit_lac = min(twin.header_lac, count - 1), min(twin.explicit_lac, count - 1)


@pytest.mark.parametrize(("has_another", "said"), [(False, "the log ends that ledger at entry"), (True, "another one")])
def test_a_state_that_no_entry_follows_is_compared_with_the_entry_that_it_stands_on(
    has_another: bool, said: str
) -> None:
    async def scenario(world: LogWorld) -> None:
        for _ in range(5):
            await world.add()
        manifest = await world.snapshot()
        world.leader_host.kill()
        twin = world.ledgers.ledgers[manifest.ledger_id]
        _set_back(twin, manifest.entry_id + has_another)
        if has_another:
            twin.entries[-1] = msgspec.structs.replace(twin.entries[-1], payload=b"of another history")
        seen = len(world.cluster.stopped)
        await world.until(lambda: len(world.cluster.stopped) > seen)
        _, reason = world.cluster.stopped[seen]
        assert isinstance(reason, ForkedLogError), reason
        assert f"entry {manifest.entry_id} of ledger {manifest.ledger_id}" in str(reason)
        assert said in str(reason)
        assert len((await world.chain()).ledgers) == 1, "it has written the chain of a log that is not its own"

    run(scenario, replica_count=1)


def test_a_state_at_the_end_of_the_log_takes_it_over() -> None:
    async def scenario(world: LogWorld) -> None:
        await world.add()
        manifest = await world.snapshot()
        world.leader_host.kill()
        _set_back(world.ledgers.ledgers[manifest.ledger_id], manifest.entry_id + 1)
        await world.until_led()
        assert await world.add() > manifest.revision

    run(scenario, replica_count=1)
