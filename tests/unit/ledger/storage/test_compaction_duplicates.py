"""A writer that reconnects sends again what is unanswered: the same entries lie in two segments, and become one."""

from __future__ import annotations

import asyncio

import pytest

from ledger.storage.compaction import CompactionSettings
from tests.unit.ledger.storage.store_bench import StoreBench, entry

NOW_MS = 1_000_000_000_000


@pytest.mark.parametrize("parts", [(range(10), range(5)), (range(5), range(10)), (range(3), range(7), range(2))])
@pytest.mark.parametrize("keep_index", [True, False])
def test_compaction_of_blocks_that_begin_with_the_same_entry_loses_nothing(parts, keep_index) -> None:
    async def run() -> None:
        bench = StoreBench(None, keep_index=keep_index, compaction=CompactionSettings(bytes_per_s=1 << 40))
        for number, ids in enumerate(parts):
            await bench.open()
            await bench.add(*[(1, n) for n in ids], *[(10 + number, n) for n in range(20)], size=200)
        await bench.open()
        await bench.store.deletions.delete([10 + number for number in range(len(parts))], NOW_MS)
        assert len(await bench.store.compactor.compact(0.9, NOW_MS)) == len(parts)
        for _ in range(2):
            for entry_id in range(max(map(len, parts))):
                assert await bench.read(1, entry_id) == entry(1, entry_id, 200), entry_id
            await bench.open()

    asyncio.run(run())
