"""What an entry costs that is read from a ledger of which each bookie has a part, beside one of which each has all.

    RSM_BENCH_ROUNDS=10 .venv/bin/python -P -m tests.bench.bench_striped_reads

Three bookies; one ledger is striped (ensemble 3, write quorum 2), the other one is not (3, 3). They are read in turn
from the first entry to the last, as blocks, as Spark's tasks read, and as entries, as readers of logs do; the striped
one also entry by entry, as where bookies read no stripes. CPU is by entry, of the reader and of the three bookies.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import defaultdict
from contextlib import aclosing
from pathlib import Path

import uvloop

from ledger.client.client import LedgerClient
from ledger.client.read_handle import ReadHandle
from ledger.core import reader as reader_module
from ledger.core.stripes import STRIDE_MAX
from ledger.dev.cluster import DevCluster
from tests.bench.cpu import CpuMeter
from tests.bench.figure import print_figure_beside, say
from tests.bench.ledger_load import payload_of, settle

ROUND_COUNT = int(os.environ.get("RSM_BENCH_ROUNDS", "10"))
ENTRIES = int(os.environ.get("RSM_BENCH_ENTRIES", "60000"))
_SIZES = (100, 1024)
_WAYS = {"striped": 2, "one_by_one": 2, "whole": 3}
"""Write quorum of each."""
_WAVE = 1_000


async def _write(client: LedgerClient, write_quorum: int, size: int) -> ReadHandle:
    """Write a ledger, close it, and open it to be read."""
    handle = await client.create(ensemble_size=3, write_quorum=write_quorum, ack_quorum=2)
    payload = payload_of(size)
    for _ in range(ENTRIES // _WAVE):
        await handle.append_many([payload] * _WAVE)
    await handle.close()
    return await client.open_no_recovery(handle.ledger_id)


async def _read(reader: ReadHandle, *, is_blocks: bool) -> int:
    found = 0
    last = reader.last_add_confirmed
    if is_blocks:
        async with aclosing(reader.blocks(0, last)) as blocks:
            async for some in blocks:
                found += sum(map(len, some))
    else:
        async with aclosing(reader.entries(0, last)) as batches:
            async for batch in batches:
                found += len(batch)
    return found


async def main() -> None:
    """Measure and print a line per figure."""
    figures: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with tempfile.TemporaryDirectory(prefix="rsm-bench-") as folder, DevCluster(Path(folder) / "cluster") as cluster:
        bookies = [pid for name, pid in cluster.pids().items() if name.startswith("bookie")]
        kinds = {"reader": [os.getpid()], "bookies": bookies}
        async with await LedgerClient.connect(cluster.metadata_uri) as client:
            readers = {(way, size): await _write(client, _WAYS[way], size) for way in _WAYS for size in _SIZES}
            settle(bookies)
            for number in range(ROUND_COUNT):
                say(f"striped reads: round {number + 1} of {ROUND_COUNT}")
                for is_blocks in (True, False):
                    for size in _SIZES:
                        for way in sorted(_WAYS, reverse=bool(number % 2)):
                            vars(reader_module)["STRIDE_MAX"] = 1 if way == "one_by_one" else STRIDE_MAX
                            meter, began_s = CpuMeter(kinds), time.perf_counter()
                            count = await _read(readers[way, size], is_blocks=is_blocks)
                            took_s = time.perf_counter() - began_s
                            name = f"{'blocks' if is_blocks else 'entries'}_{size}b"
                            meter.note(name, count, lambda key, us, way=way: figures[key][way].append(us))  # type: ignore[misc]
                            figures[f"{name}_per_s"][way].append(count / took_s)
    for name, found in sorted(figures.items()):
        peers = {way: found[way] for way in _WAYS if way != "striped"}
        print_figure_beside(f"striped_{name}", found["striped"], "µs" if "_us" in name else "entries/s", peers)


if __name__ == "__main__":
    uvloop.run(main())
