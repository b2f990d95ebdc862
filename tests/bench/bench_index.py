"""The bookie's index: rows in, look-ups out, memory, at many ledgers.

    python -P tests/bench/bench_index.py [ledgers]

Segments of 10,000 ledgers with one block each are committed, then as many with ledgers drawn at random; then random
look-ups of a ledger's row and of a block. Prints one JSON line; run each in a process of its own.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path

from ledger.storage.index import BlockRow, LedgerRow
from ledger.storage.index_lmdb import LmdbIndex

SEGMENT_LEDGERS = 10_000
LOOK_UPS = 50_000


def memory_mib() -> dict[str, float]:
    """Return what /proc says of this process: anonymous pages, and pages of mapped files."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {name: round(int(fields[name].split()[0]) / 1024, 1) for name in ("VmRSS", "RssAnon", "RssFile")}


def commit(index: LmdbIndex, segment_id: int, ledger_ids: list[int], first: int) -> None:
    blocks = [BlockRow(i, first, first + 9, segment_id, n * 10_000, 10_000) for n, i in enumerate(ledger_ids)]
    rows = [LedgerRow(i, b"k" * 20, last_entry_id=first + 9, last_add_confirmed=first + 8) for i in ledger_ids]
    index.commit_segment(segment_id, blocks, rows)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    rng = random.Random(1)
    empty = memory_mib()
    figures: dict[str, object] = {"bench": "index", "ledgers": count}
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        index = LmdbIndex(f"{folder}/index")
        segments = count // SEGMENT_LEDGERS
        for name, draw in (
            ("new", lambda n: list(range(n * SEGMENT_LEDGERS, (n + 1) * SEGMENT_LEDGERS))),
            ("random", lambda _: sorted(rng.sample(range(count), SEGMENT_LEDGERS))),
        ):
            cpu, wall = time.process_time(), time.perf_counter()
            for n in range(segments):
                commit(index, n + (segments if name == "random" else 0), draw(n), 10 if name == "random" else 0)
            figures[f"put_{name}_cpu_us"] = round((time.process_time() - cpu) / count * 1e6, 2)
            figures[f"put_{name}_wall_us"] = round((time.perf_counter() - wall) / count * 1e6, 2)
        figures["after_put_mib"] = memory_mib()
        for name, look in (
            ("ledger", index.ledger),
            ("candidates", lambda i: index.candidates(i, 5)),
        ):
            asked = [rng.randrange(count) for _ in range(LOOK_UPS)]
            cpu = time.process_time()
            for i in asked:
                assert look(i)
            figures[f"get_{name}_cpu_us"] = round((time.process_time() - cpu) / LOOK_UPS * 1e6, 2)
        figures["after_get_mib"] = memory_mib()
        figures["empty_mib"] = empty
        figures["disk_mib"] = round(sum(f.stat().st_size for f in Path(folder).rglob("*")) / 2**20, 1)
        index.close()
    print(json.dumps(figures | {"load": round(os.getloadavg()[0], 1)}))


if __name__ == "__main__":
    main()
