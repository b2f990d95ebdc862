"""`python -P -m tests.bench.bench_decode`: entries of a log to rows, as a task of Spark does it, without Spark.

* `decode_record_us_1`, `decode_record_us_100`: processor time a record of 100 B, with so many an entry, decoded into
  all columns of `rows=records`. Each round decodes `RSM_BENCH_RECORDS` (200,000); the first one is left out

The least counts: what else a machine does can only add to it.
"""

from __future__ import annotations

import os
import time
from typing import Final

from connectors.source.decode import decode_log
from connectors.source.record_rows import RecordSlice
from tests.bench.figure import ROUND_COUNT, print_figure
from tests.unit.connectors.source.written import LOG_ID, MACHINE, block_of, payloads_of, plan_of, put

RECORD_COUNT: Final = int(os.environ.get("RSM_BENCH_RECORDS", "200_000"))
_KEY_COUNT: Final = 50_000
_VALUE_BYTES: Final = 80
_BLOCK_ENTRIES: Final = 1_000


def measure(records_per_entry: int) -> float:
    """Return µs of processor time a record."""
    records = [
        put(b"key-%d" % (number % _KEY_COUNT), (b"%d-" % number).ljust(_VALUE_BYTES, b"x"))
        for number in range(RECORD_COUNT)
    ]
    payloads = payloads_of([records[at : at + records_per_entry] for at in range(0, RECORD_COUNT, records_per_entry)])
    blocks = [
        block_of(payloads[first : first + _BLOCK_ENTRIES], first) for first in range(0, len(payloads), _BLOCK_ENTRIES)
    ]
    costs = []
    for _ in range(ROUND_COUNT + 1):
        began_s = time.process_time()
        batches = decode_log(blocks, plan_of(), RecordSlice("orders", 3, 0, 0, MACHINE), LOG_ID)
        rows = sum(batch.num_rows for batch in batches)
        costs.append((time.process_time() - began_s) / RECORD_COUNT * 1e6)
        assert rows == RECORD_COUNT
    return min(costs[1:])


def main() -> None:
    """Measure both."""
    for count in (1, 100):
        print_figure(f"decode_record_us_{count}", [measure(count) for _ in range(ROUND_COUNT)], "µs")


if __name__ == "__main__":
    main()
