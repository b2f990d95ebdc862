"""Spark 4.0 and 4.1, which tell sources in Python less: what they read of a log, beside a fold in plain Python."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rsm_spark.logs.blocking import BlockingLogs
from tests.spark.children import CHILD_S, run_child
from tests.spark.conftest import WrittenLog
from tests.spark.foreign_python import foreign_environment

_ROOT = Path(__file__).resolve().parents[2]
_PROGRAM = """
import json, sys
from pathlib import Path
import pyspark
from connectors.session import spark_session

folder, given = Path(sys.argv[1]), json.loads(sys.argv[2])
options, batches = given["options"], folder / "batches"
spark = spark_session("older", delta=False, local="local[2]", conf={
    "spark.ui.enabled": "false", "spark.log.level": "ERROR",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
})

def shown(frame):
    return [[bytes(one).decode() if isinstance(one, bytes | bytearray) else one for one in row]
            for row in frame.collect()]

def keep(frame, number):
    rows = shown(frame.select("key", "value", "_fold", "_revision").orderBy("_revision"))
    batches.mkdir(exist_ok=True)
    (folder / "new").write_text(json.dumps(rows))
    (folder / "new").replace(batches / f"{number:04}.json")

def stream(trigger, checkpoint="checkpoint", **more):
    frame = spark.readStream.format("ledger").options(**options, rows="table", startingOffsets="earliest", **more)
    writer = frame.load().writeStream.foreachBatch(keep).option("checkpointLocation", str(folder / checkpoint))
    return writer.trigger(**trigger).start()

def why(do):
    try:
        do()
    except Exception as error:
        return str(error)
    return ""

def batch():
    read = spark.read.format("ledger").options(**options)
    changes = read.option("rows", "table").load().select("key", "value", "_fold", "_revision").orderBy("_revision")
    state = spark.read.format("ledger_state").options(**options, table="map").load()
    return {
        "version": pyspark.__version__,
        "changes": shown(changes),
        "tail": shown(changes.where("_revision > 20")),
        "entries": spark.read.format("ledger").options(**options, rows="raw").load().count(),
        "state": shown(state.select("key", "value", "_revision").orderBy("key")),
    }

def available_now():
    stream({"availableNow": True}).awaitTermination()
    return {}

def running():
    query = stream({"processingTime": "0 seconds"})
    while not any(f", {given['until']}]" in one.read_text() for one in batches.glob("*.json")):
        query.awaitTermination(1)
    query.stop()
    return {}

def refused():
    rows = spark.createDataFrame([(b"k", b"v")], "key binary, value binary")
    told = {name: why(lambda name=name: stream({"availableNow": True}, "refused", **{name: value}).awaitTermination())
            for name, value in given["newer"].items()}
    frame = spark.readStream.format("ledger").options(**{**options, "log": given["partitioned"]}).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(folder / "parts"))
    told["partitioned"] = why(lambda: writer.trigger(availableNow=True).start().awaitTermination())
    told["as"] = why(lambda: rows.write.format("ledger").options(**options, **{"as": "map"}).mode("append").save())
    told["pushdown"] = why(lambda: spark.read.format("ledger").options(**options, pushdown="true").load()
        .where("revision > 20").count())
    return told

print(json.dumps({name: globals()[name]() for name in given["do"]}))
"""
_NEWER = {"maxOffsetsPerTrigger": "5", "maxBytesPerTrigger": "100", "minOffsetsPerTrigger": "5", "consumer": "reads"}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(6 * CHILD_S)]


class OlderSpark:
    """An older Spark with the packages of this project beside it, its log, and what plain Python makes of that.

    Attributes:
        changes: Key, value, fold and revision of each.

    """

    def __init__(self, version: str, log: WrittenLog, folder: Path) -> None:
        self.changes: list[list[Any]] = []
        self._log, self._folder = log, folder
        packages = foreign_environment(_ROOT / "tools" / f"spark-{version}.lock").parent / "lib"
        (found,) = packages.glob("python*/site-packages")
        # Before this interpreter's own, whose Spark is another.
        self._path = f"{found}:{_ROOT}"
        (folder / "program.py").write_text(_PROGRAM)

    def put(self, *numbers: int) -> None:
        for number in numbers:
            self._log.put({f"k{number % 7}".encode(): f"v{number}".encode()})
            self.changes.append([f"k{number % 7}", f"v{number}", "upsert", self._log.revision])

    def delete(self, key: str) -> None:
        self._log.delete(key.encode())
        self.changes.append([key, None, "delete", self._log.revision])

    def run(self, *parts: str, **more: Any) -> dict[str, Any]:
        """Run parts of the program in a process of its own; return what each tells."""
        given = {"options": self._log.options(), "do": parts, **more}
        return run_child(
            [sys.executable, str(self._folder / "program.py"), str(self._folder), json.dumps(given)],
            self._folder,
            PYTHONPATH=self._path,
        )

    def batches(self) -> list[list[list[Any]]]:
        """Return the rows of each micro-batch, of those that have any."""
        kept = [json.loads(one.read_text()) for one in sorted((self._folder / "batches").glob("*.json"))]
        return [rows for rows in kept if rows]

    def streamed(self) -> list[list[Any]]:
        return [row for rows in self.batches() for row in rows]

    def state(self) -> list[list[Any]]:
        kept: dict[str, list[Any]] = {}
        for key, value, fold, revision in self.changes:
            kept.pop(key, None)
            if fold == "upsert":
                kept[key] = [key, value, revision]
        return sorted(kept.values())


def _wait(is_so: Callable[[], bool], running: Any) -> None:
    deadline = time.monotonic() + CHILD_S
    while not is_so():
        assert not running.done(), running.result()
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.parametrize("version", ["4.0", "4.1"])
def test_an_older_spark_reads_what_plain_python_does(version: str, log: WrittenLog, tmp_path: Path) -> None:
    older = OlderSpark(version, log, tmp_path)
    older.put(*range(20))
    older.delete("k3")
    log.roll()
    older.put(*range(20, 30))
    partitioned = f"{log.name}-parts"
    with BlockingLogs.connect(log.metadata_uri) as logs:
        logs.create(partitioned, partitions=2)
    told = older.run("batch", "available_now", "refused", newer=_NEWER, partitioned=partitioned)
    batch = told["batch"]
    assert batch["version"].startswith(f"{version}.")
    assert batch["changes"] == older.changes
    assert batch["tail"] == [row for row in older.changes if row[3] > 20]
    assert batch["state"] == older.state()
    assert batch["entries"] == len(log.entries)
    assert older.batches() == [older.changes], "a micro-batch takes all that there is"
    for name in _NEWER:
        assert f"option {name} needs Spark 4.2" in told["refused"][name]
    assert f"log {partitioned} is partitioned" in told["refused"]["partitioned"]
    assert "Spark 4.2 is needed to write" in told["refused"]["as"]
    assert ("option pushdown needs Spark 4.1" in told["refused"]["pushdown"]) == (version == "4.0")

    # Another start, at the end of an idle log that has rolled, finds nothing; with new rows it takes these alone.
    log.roll()
    older.run("available_now")
    assert older.streamed() == older.changes
    older.put(*range(30, 40))
    older.delete("k4")
    older.run("available_now")
    assert older.streamed() == older.changes
    assert len(older.batches()) == 2

    # A stream that goes on knows from its second micro-batch on where the next one begins.
    older.put(40)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(older.run, "running", until=log.revision + 3)
        _wait(lambda: older.streamed() == older.changes, running)
        older.put(41)
        _wait(lambda: older.streamed() == older.changes, running)
        log.roll()
        older.put(42, 43)
        running.result()
    assert older.streamed() == older.changes
