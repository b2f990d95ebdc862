"""What folding the log of a map costs a replica, in one process without IO: `python -m tests.bench.bench_replay`.

Entries as a leader composes them of bulk puts, each a command of a session, are applied to an empty state, and its
digest summed up: what a boot from the log alone does beside reading. `replay_per_s` is by the wall clock,
`replay_cpu_us` the processor time of one record; `..._again` writes to keys that are there. RSM_BENCH_ROUNDS and
RSM_BENCH_RECORDS change sizes.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict

from rsm_spark.core.envelope import Envelope, encode_envelope, entry_hash, root_hash
from rsm_spark.core.machine import encode_description
from rsm_spark.core.records import CommandHead, KernelRecord, Record, encode_records
from rsm_spark.core.state import ReplicatedState
from rsm_spark.map.machine import MapMachine
from rsm_spark.map.messages import Put, encode
from tests.bench.figure import print_figure, say

ROUND_COUNT = int(os.environ.get("RSM_BENCH_ROUNDS", "3"))
RECORDS = int(os.environ.get("RSM_BENCH_RECORDS", "300000"))
_VALUE_BYTES = 256
_ENTRY_RECORDS = 1_000
_LOG_ID, _SESSION = b"l" * 16, b"s" * 16


def entries(count: int, key_count: int) -> list[bytes]:
    """Return the entries of a log with so many puts to so many keys in turn."""
    machine, value = MapMachine(), b"v" * _VALUE_BYTES
    written: list[bytes] = []
    revision, prefix_hash = 0, root_hash(_LOG_ID)

    def log(records: list[Record]) -> None:
        nonlocal revision, prefix_hash
        first = revision + 1 - len(records)
        envelope = Envelope(_LOG_ID, 1, first, first - 1, 1_000 + first, len(records), prefix_hash)
        payload = encode_envelope(envelope, encode_records(records))
        prefix_hash = entry_hash(payload)
        written.append(payload)

    revision = 2
    log([
        Record(KernelRecord.MACHINE_DESCRIBED, None, (encode_description(machine.description),)),
        Record(KernelRecord.SESSION_OPENED, None, (_SESSION,)),
    ])  # fmt: skip
    for begin in range(0, count, _ENTRY_RECORDS):
        records: list[Record] = []
        for number in range(begin, min(count, begin + _ENTRY_RECORDS)):
            put = encode(Put(b"key/%09d" % (number % key_count), value))
            revision += 1
            decision = machine.decide(put, revision, 1_000)
            head = CommandHead(_SESSION, number + 1, number, 1, decision.reply)
            ((kind, fields),) = decision.records
            machine.apply(kind, fields, revision)
            records.append(Record(kind, head, fields))
        log(records)
    return written


def fold(payloads: list[bytes]) -> tuple[float, float]:
    """Return wall and processor seconds of one replay."""
    state = ReplicatedState(MapMachine(), _LOG_ID)
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    for payload in payloads:
        state.apply_entry(payload)
    assert state.digest
    return time.perf_counter() - began_s, time.process_time() - began_cpu_s


def main() -> None:
    figures: dict[str, list[float]] = defaultdict(list)
    logs = {"": entries(RECORDS, RECORDS), "_again": entries(RECORDS, RECORDS // 30)}
    for number in range(ROUND_COUNT):
        say(f"round {number + 1} of {ROUND_COUNT}")
        for name, payloads in logs.items():
            wall_s, cpu_s = fold(payloads)
            figures[f"replay_per_s{name}"].append(RECORDS / wall_s)
            figures[f"replay_cpu_us{name}"].append(cpu_s / RECORDS * 1e6)
    for name, values in figures.items():
        print_figure(name, values, "records/s" if "per_s" in name else "us")


if __name__ == "__main__":
    main()
