"""Real bookies die under a real writer, and a spare takes over: no append fails, every entry is readable."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest

from ledger import ClientSettings, LedgerClient, LedgerState
from ledger.dev import DevCluster

_PAYLOAD_BYTES = 512


@pytest.mark.parametrize(
    ("way", "shape", "protocol"),
    [
        ("killed", (2, 2, 2), "v2"),
        ("killed", (2, 2, 1), "v3"),
        ("paused", (2, 2, 2), "v3"),
        ("paused", (2, 2, 1), "v2"),
    ],
)
def test_a_bookie_that_dies_under_load_is_replaced_by_a_spare(
    whole_cluster: DevCluster, way: str, shape: tuple[int, int, int], protocol: Literal["v2", "v3"]
) -> None:
    async def main() -> None:
        ensemble_size, write_quorum, ack_quorum = shape
        async with await LedgerClient.connect(
            whole_cluster.metadata_uri, settings=ClientSettings(protocol=protocol)
        ) as client:
            writer = await client.create(ensemble_size=ensemble_size, write_quorum=write_quorum, ack_quorum=ack_quorum)
            old = writer.metadata.segments[-1].bookies
            futures: list[asyncio.Future[int]] = []

            async def write_until_replaced() -> None:
                while len(writer.metadata.segments) == 1:
                    await append()
                for _ in range(100):
                    await append()

            async def append() -> None:
                number = len(futures)
                futures.append(writer.append_many([_payload(10 * number + i) for i in range(10)]))
                await writer.drain()
                await asyncio.sleep(0.002)

            writing = asyncio.create_task(write_until_replaced())
            while writer.last_add_confirmed < 200:
                await asyncio.sleep(0.01)
            victim = whole_cluster.bookies.index(old[0])
            (whole_cluster.kill_bookie if way == "killed" else whole_cluster.pause_bookie)(victim)
            async with asyncio.timeout(60):
                await writing
                confirmed = await asyncio.gather(*futures)  # no append has failed
            end = await writer.close()
            assert end == confirmed[-1] == 10 * len(futures) - 1

            metadata = await client.metadata(writer.ledger_id, sync=True)
            assert (metadata.state, metadata.last_entry_id) == (LedgerState.CLOSED, end)
            first, second = metadata.segments
            assert first.bookies == old
            assert set(second.bookies) == {old[1], *whole_cluster.bookies} - {old[0]}
            assert 200 <= second.first_entry_id <= end
            reader = await client.open_no_recovery(writer.ledger_id)
            entries = await reader.read(0, end)
            assert [entry.payload for entry in entries] == [_payload(number) for number in range(end + 1)]

    asyncio.run(main())


def _payload(number: int) -> bytes:
    return number.to_bytes(8, "big") * (_PAYLOAD_BYTES // 8)
