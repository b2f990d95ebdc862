"""The third part of `make bench-spark`: one commit of changed keys into a table that is much larger.

A follower's table of `RSM_BENCH_ROWS` (10,000,000) short rows, made once in the order of its keys and once out of it.
Each case has a copy of it and a process of its own, and merges `RSM_BENCH_KEYS` (100,000) keys twice:

* `driver_*`: `FollowerTable.apply`, that is the fold, the rows that the table has, and the merge, by `deltalake`
* `spark_*`: `MERGE` alone by delta-spark, rows given as a frame of Arrow; `spark_vectors_*` with deletion vectors
* `*_spread`: keys from everywhere in the table; `*_near`: neighbours; `*_new`: keys behind the last one; `*_mixed_*`:
  the table's rows lie in no order
* `order_driver`: putting the rows of such a table in order, by `z_order` of `deltalake`

Of each: seconds on the wall and of processors, the most memory of the process (with `spark_*` of the JVM, given a heap
of 3 GiB), files and MB written. `RSM_BENCH_ONLY` picks cases by a regular expression, `RSM_BENCH_FOLDER` says where
(tables are removed at the end), `RSM_BENCH_KEY` is `str` or `bytes`. `make bench-spark` has 2,000,000 rows and 20,000
keys, unless `MERGE_ROWS` and `MERGE_KEYS` say otherwise; alone it is `python -P -m tests.bench.bench_large_merges`.
"""

from __future__ import annotations

import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from connectors.delta.columns import FollowedTable
from connectors.delta.fold import RecordRange
from connectors.delta.follower import FollowerTable
from connectors.delta.modes import MergeMode
from rsm_spark.core.machine import Field, FieldType, TableDescription
from rsm_spark.core.records import pack
from tests.bench.cpu import cpu_s
from tests.bench.figure import print_figure, say

ROWS: Final = int(os.environ.get("RSM_BENCH_ROWS", "10_000_000"))
KEYS: Final = int(os.environ.get("RSM_BENCH_KEYS", "100_000"))
ONLY: Final = os.environ.get("RSM_BENCH_ONLY", ".")
FOLDER: Final = os.environ.get("RSM_BENCH_FOLDER")
KEY_TYPE: Final = FieldType(os.environ.get("RSM_BENCH_KEY", "str"))
TABLE: Final = TableDescription("orders", (Field("key", KEY_TYPE),), (Field("value", FieldType.BYTES),))
_LOG_ID = "ab" * 16
_VALUE_BYTES = 24
_PART_ROWS = 500_000
_MERGES = 2
_STRIDE = 7_368_787  # A prime: multiples of it, modulo the rows, are in no order.
_CASES = (
    "driver_spread", "driver_near", "driver_new", "driver_mixed_near", "order_driver",
    "spark_spread", "spark_near", "spark_vectors_spread", "spark_vectors_near",
)  # fmt: skip


class Cost(NamedTuple):
    """What one merge cost.

    Attributes:
        wall_s: On the wall.
        cpu_s: Of processors, all processes.
        memory_mib: The most that the process, or its JVM, has had.
        files: Written.
        mb: Written, in them.

    """

    wall_s: float
    cpu_s: float
    memory_mib: float
    files: int
    mb: float


def _follower(place: Path) -> FollowerTable:
    return FollowerTable(str(place), log="bench", log_id=_LOG_ID, table=TABLE)


def _keys(numbers: Any) -> list[Any]:
    texts = [f"order-{number:010}" for number in numbers]
    return [text.encode() for text in texts] if KEY_TYPE is FieldType.BYTES else texts


def make_table(place: Path, *, is_mixed: bool) -> None:
    """Make the table by one commit, in parts."""
    schema = MergeMode().schema(FollowedTable.described(TABLE))

    def parts() -> Iterator[pa.RecordBatch]:
        for begin in range(0, ROWS, _PART_ROWS):
            numbers = range(begin, min(begin + _PART_ROWS, ROWS))
            keys = _keys((number * _STRIDE) % ROWS for number in numbers) if is_mixed else _keys(numbers)
            noise = random.randbytes(_VALUE_BYTES * len(numbers))
            values = [noise[at : at + _VALUE_BYTES] for at in range(0, len(noise), _VALUE_BYTES)]
            columns = [pa.array(keys, schema.field("key").type), pa.array(values, pa.binary())]
            columns.append(pa.array(numbers, pa.int64()))
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    follower = _follower(place)
    empty = follower.empty_position()
    position = type(empty)(**{name: getattr(empty, name) for name in empty.__struct_fields__} | {
        "revision": ROWS, "ledger": 1, "entry": ROWS, "row_count": ROWS,
    })  # fmt: skip
    follower.begin(position, pa.RecordBatchReader.from_batches(schema, parts()))


def changed(kind: str, merge: int) -> list[int]:
    """Return the numbers of the keys that a merge changes."""
    rng = random.Random(merge)
    if kind == "new":
        return list(range(ROWS + merge * KEYS, ROWS + (merge + 1) * KEYS))
    if kind == "near":
        begin = rng.randrange(ROWS - KEYS)
        return list(range(begin, begin + KEYS))
    return rng.sample(range(ROWS), KEYS)


def _records(numbers: list[int], revision: int) -> RecordRange:
    count = len(numbers)
    columns: dict[str, Any] = {
        "revision": pa.array(range(revision + 1, revision + count + 1), pa.int64()),
        "ledger_id": pa.repeat(pa.scalar(1, pa.int64()), count),
        "entry_id": pa.repeat(pa.scalar(revision, pa.int64()), count),
        "logged_at": pa.repeat(pa.scalar(0, pa.timestamp("us", "UTC")), count),
        "type": pa.repeat(pa.scalar(16, pa.int32()), count),
        "table_name": pa.repeat(pa.scalar(TABLE.name), count),
        "fold": pa.repeat(pa.scalar("upsert"), count),
        "key": pa.array([pack((key,)) for key in _keys(numbers)], pa.binary()),
        "row": pa.array([pack((random.randbytes(_VALUE_BYTES),)) for _ in numbers], pa.binary()),
        "fields": pa.nulls(count, pa.binary()),
        "entry_hash": pa.array([None] * (count - 1) + [bytes(32)], pa.binary()),
    }
    return RecordRange(pa.table(columns))


def _written(place: Path, version: int) -> tuple[int, float]:
    """Return files and MB that the commits after a version have added."""
    sizes: list[int] = []
    for path in sorted((place / "_delta_log").glob("*.json")):
        if path.stem.isdigit() and int(path.stem) > version:
            actions = map(json.loads, path.read_text().splitlines())
            sizes += [action["add"]["size"] for action in actions if "add" in action]
    return len(sizes), sum(sizes) / 1e6


def _measured(place: Path, work: Callable[[], object], pids: tuple[int, ...]) -> Cost:
    version = DeltaTable(str(place)).version()
    wall, cpu = time.perf_counter(), time.process_time() + sum(map(cpu_s, pids))
    work()
    cpu = time.process_time() + sum(map(cpu_s, pids)) - cpu
    wall = time.perf_counter() - wall
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for pid in pids:
        found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
        peak_kib = int(found[1]) if found else peak_kib
    files, mb = _written(place, version)
    return Cost(wall, cpu, peak_kib / 1024, files, mb)


def measure_driver(place: Path, kind: str) -> list[Cost]:
    """Merge as a follower does."""
    follower = _follower(place)
    ranges = [_records(changed(kind, merge), ROWS + merge * KEYS) for merge in range(_MERGES)]
    return [_measured(place, lambda span=span: follower.apply(span), ()) for span in ranges]  # type: ignore[misc]


def _spark() -> tuple[SparkSession, int]:
    from connectors.session import spark_session  # noqa: PLC0415 - most cases need no JVM

    spark = spark_session("large merges", conf={"spark.ui.enabled": "false", "spark.driver.memory": "3g"})
    spark.sparkContext.setLogLevel("ERROR")
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    return spark, int(jvm.java.lang.ProcessHandle.current().pid())


def measure_spark(place: Path, kind: str, *, has_vectors: bool) -> list[Cost]:
    """Merge by delta-spark."""
    spark, pid = _spark()
    if has_vectors:
        spark.sql(f"ALTER TABLE delta.`{place}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    costs = []
    for merge in range(_MERGES):
        numbers = changed(kind, merge)
        first = ROWS + merge * KEYS
        rows = pa.table({
            "key": pa.array(_keys(numbers)), "value": pa.array([random.randbytes(_VALUE_BYTES) for _ in numbers]),
            "_revision": pa.array(range(first, first + KEYS), pa.int64()),
        })  # fmt: skip

        def work(rows: pa.Table = rows) -> None:
            spark.createDataFrame(rows).createOrReplaceTempView("s")
            spark.sql(
                f"MERGE INTO delta.`{place}` t USING s ON t.key = s.key WHEN MATCHED THEN UPDATE SET * "
                "WHEN NOT MATCHED THEN INSERT *"
            ).collect()

        costs.append(_measured(place, work, (pid,)))
    spark.stop()
    return costs


def measure_order(place: Path) -> list[Cost]:
    """Put the rows of a table in order."""
    return [_measured(place, lambda: DeltaTable(str(place)).optimize.z_order(["key"]), ())]


def measure(case: str, place: Path) -> list[Cost]:
    """Return the costs of the merges of a case, in this process."""
    way, _, kind = case.partition("_")
    if way == "order":
        return measure_order(place)
    if way == "driver":
        return measure_driver(place, kind.removeprefix("mixed_"))
    return measure_spark(place, kind.rpartition("_")[2], has_vectors="vectors" in kind)


def _copied(base: Path, place: Path) -> None:
    """Copy a table: its files are links, nobody writes into them."""
    shutil.copytree(base, place, copy_function=os.link)
    log = place / "_delta_log"
    shutil.rmtree(log)
    shutil.copytree(base / "_delta_log", log)


def main() -> None:
    """Make the tables, measure each case in a process of its own, and print its figures."""
    cases = [case for case in _CASES if re.search(ONLY, case)]
    with tempfile.TemporaryDirectory(prefix="rsm-bench-", dir=FOLDER) as folder:
        bases: dict[bool, Path] = {}
        for case in cases:
            is_mixed = "mixed" in case or case.startswith("order")
            if is_mixed not in bases:
                say(f"a table of {ROWS:,} rows{', in no order' if is_mixed else ''}")
                bases[is_mixed] = Path(folder) / f"base-{is_mixed}"
                make_table(bases[is_mixed], is_mixed=is_mixed)
            place = Path(folder) / case
            _copied(bases[is_mixed], place)
            say(f"{case}: {KEYS:,} keys")
            done = subprocess.run(
                [sys.executable, "-P", "-m", "tests.bench.bench_large_merges", case, str(place)],
                stdout=subprocess.PIPE, text=True, check=True,
            )  # fmt: skip
            costs = [Cost(*cost) for cost in json.loads(done.stdout.splitlines()[-1])]
            for name, unit in (("wall_s", "s"), ("cpu_s", "s"), ("memory_mib", "MiB"), ("files", ""), ("mb", "MB")):
                print_figure(f"large_{case}_{name}", [getattr(cost, name) for cost in costs], unit)
            shutil.rmtree(place)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.stdout.write(json.dumps(measure(sys.argv[1], Path(sys.argv[2]))) + "\n")
    else:
        main()
