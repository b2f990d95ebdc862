"""A log with a key through Spark's own reader: without the key it is read, with it nothing foreign is believed."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from broker.client import BrokerClient
from connectors.state.verify import VerifySettings, verify_log
from ledger.dev import DevCluster
from rsm_spark.log.key_file import KeyFile
from tests.integration.broker_processes import brokers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROOT = Path(__file__).resolve().parents[2]


def _rsm(*arguments: str) -> str:
    command = [sys.executable, "-m", "rsm_spark", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=_ROOT)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """Return a key file as the command makes it."""
    path = tmp_path / "log.key"
    _rsm("log", "key", "new", "--file", str(path))
    return path


def _values(spark: SparkSession, log: Any, **more: Any) -> list[tuple[bytes, bytes]]:
    """Return what a batch read has, through executors' own processes."""
    frame = spark.read.format("ledger").options(**log.options(rows="kafka", **more)).load()
    rows = frame.where("key is not null").orderBy("offset").collect()
    return [(bytes(row["key"]), bytes(row["value"])) for row in rows]


def test_a_foreign_entry_ends_a_read_with_the_key_by_its_place_and_is_passed_over_once_it_is_set_aside(
    spark: SparkSession, make_log: Callable[..., Any], key: Path
) -> None:
    log = make_log(keys=KeyFile.read(key))
    for turn in range(2):
        log.put({b"k%d" % number: b"v%d" % turn for number in range(5)})
        log.roll()
    written = [(b"k%d" % number, b"v%d" % turn) for turn in range(2) for number in range(5)]
    assert _values(spark, log, logKeyFile=key) == written
    # It follows the last one in every respect, but for its seal.
    log.put({b"k0": b"own"})
    last = log.entries[-1][2]
    forged = last[:-1] + bytes([last[-1] ^ 1])
    place = log.append_foreign(forged)
    log.roll()
    log.put({b"k1": b"after"})
    with pytest.raises(Exception, match=rf"ledger {place[0]} entry {place[1]}: its seal is not that of key"):
        _values(spark, log, logKeyFile=key)
    log.set_aside(*place, forged)
    written += [(b"k0", b"own"), (b"k1", b"after")]
    assert _values(spark, log, logKeyFile=key) == written
    assert _values(spark, log) == written, "who has no key reads"


@pytest.mark.slow
def test_a_log_with_an_entry_set_aside_is_proved(spark: SparkSession, make_log: Callable[..., Any], key: Path) -> None:
    log = make_log(keys=KeyFile.read(key))
    log.put({b"k0": b"own"})
    log.roll()
    log.put({b"k0": b"newer"})
    forged = log.entries[-1][2][:-1] + b"?"
    place = log.append_foreign(forged)
    log.roll()
    log.put({b"k1": b"after"})
    settings = VerifySettings(log.name, source={"metadataUri": log.metadata_uri, "logKeyFile": str(key)})
    with pytest.raises(Exception, match=rf"ledger {place[0]} entry {place[1]}: its seal is not that of key"):
        verify_log(spark, settings)
    log.set_aside(*place, forged)
    proved = verify_log(spark, settings)
    assert proved.ok, proved.differences
    assert proved.covered.last_revision == log.revision


def _ran(name: str, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """Run a job; return its last line."""
    code = importlib.import_module(f"jobs.{name}").main(list(arguments))
    said = capsys.readouterr()
    assert code == 0, said.out + said.err
    return dict(json.loads(said.out.splitlines()[-1]))


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_jobs_on_the_log_of_a_broker_with_a_key(
    cluster: DevCluster, key: Path, unique_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    public = tmp_path / "log.pub"
    public.write_text(_rsm("log", "key", "show-public", "--file", str(key)))
    options = ("--metadata-uri", cluster.metadata_uri, "--log", unique_name, "--http-port", "0")
    more = ("--bookies", "3/3/2", "--log-key", str(key), "--checkpoint-records", "20")
    with brokers(tmp_path, "b", options=(*options, *more)) as (broker,):
        with BrokerClient.connect([broker.url], tenant="acme") as client:
            ids = [client.submit("noop") for _ in range(50)]
        with BrokerClient.connect([broker.url]) as operator:
            operator.hold(tenant="acme", reason="a test")
        where = ("--metadata-uri", cluster.metadata_uri, "--log", unique_name, "--log-key-file", str(key))
        table, audit = tmp_path / "tasks", tmp_path / "audit"
        _ran("materialize", capsys, *where, "--tables", str(table), "--available-now")
        tasks = DeltaTable(str(table / "tasks")).to_pyarrow_table().to_pylist()
        assert sorted(row["task_id"] for row in tasks) == sorted(ids)
        proof = _ran("verify", capsys, *where, "--table", str(table / "tasks"), "--public-key", str(public))
        assert proof["ok"]
        assert proof["authorship"]["signatures"] >= 2
        assert proof["authorship"]["proven_revision"] > 20
        _ran("audit", capsys, *where, "--table", str(audit), "--available-now")
        told = DeltaTable(str(audit)).to_pyarrow_table().to_pylist()
        assert [row["outcome"] for row in told if "acme" in row["target"]] == ["asked", "done"], told
