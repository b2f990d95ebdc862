"""The jobs with their tables and lakes in S3, against a real server: credentials from a file or the environment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from connectors.errors import OptionError
from connectors.source.lake_reader import LakeReader
from connectors.state.frame import state_as_of
from jobs import audit, materialize, snapshot, verify
from rsm_spark.core.machine import encode_description
from rsm_spark.core.records import KernelRecord, Record
from tests.integration.s3_server import DENIED, SECRETS, Asked, Bucket, harmful, times
from tests.spark.conftest import MACHINE
from tests.spark.test_audit import audited_record
from tests.spark.test_snapshot import replica_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.timeout(1800), pytest.mark.usefixtures("spark")]


class Jobs:
    """Jobs of one log, as a command line calls them, in this process and its Spark session."""

    def __init__(self, log: Any, capfd: pytest.CaptureFixture[str], *more: str) -> None:
        self._log, self._capfd, self._more = log, capfd, more
        self.told = ""

    def run(self, job: Any, *arguments: str) -> dict[str, Any]:
        """Return the last line of a job that is done."""
        code, line = self._run(job, *arguments)
        assert code == 0, line
        return line

    def refused(self, job: Any, *arguments: str) -> str:
        """Return why a job failed."""
        code, line = self._run(job, *arguments)
        assert code == 1, line
        return str(line["error"])

    def wrong(self, job: Any, *arguments: str) -> str:
        """Return what a job says of wrong arguments."""
        assert job.main(["--log", self._log.name, *self._more, *arguments]) == 2
        out, errors = self._capfd.readouterr()
        self.told += out + errors
        return errors

    def _run(self, job: Any, *arguments: str) -> tuple[int, dict[str, Any]]:
        given = ["--log", self._log.name, "--metadata-uri", self._log.metadata_uri, *self._more, *arguments]
        code = job.main(given)
        out, errors = self._capfd.readouterr()
        self.told += out + errors
        return code, json.loads(out.splitlines()[-1])


def no_secret(*told: str | bytes) -> None:
    for text in told:
        found = text.encode() if isinstance(text, str) else text
        assert not [secret for secret in SECRETS if secret.encode() in found]


def table_of(bucket: Bucket, path: str) -> list[dict[str, Any]]:
    table = DeltaTable(f"{bucket.uri}/{path}", storage_options=bucket.options())
    return pa.RecordBatchReader.from_stream(table.scan()).read_all().to_pylist()


@pytest.fixture
def jobs(log: Any, bucket: Bucket, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Jobs:
    return Jobs(log, capfd, "--storage-options-file", str(bucket.options_file(tmp_path)))


def test_a_lake_in_a_bucket_holds_snapshots_that_are_proved_and_the_past(
    spark: SparkSession, log: Any, bucket: Bucket, jobs: Jobs
) -> None:
    log.fill(20)
    log.delete(b"key-3")
    lake, middle = f"{bucket.uri}/lake", log.revision
    made = jobs.run(snapshot, "--lake", lake)
    assert made["manifest"]["revision"] == middle
    assert jobs.run(snapshot, "--lake", lake)["manifest"] == made["manifest"], "run again it writes nothing new"
    log.fill(5)
    options = {f"storageOption.{key}": value for key, value in bucket.options().items()}
    past = spark.read.format("ledger_state").options(**log.options(lake=lake, asOfRevision=middle, **options)).load()
    assert past.count() == replica_of(log, 22).row_count
    now = state_as_of(spark, log.name, lake=lake, source=log.options(), storage_options=bucket.options())
    assert now.count() == replica_of(log).row_count
    begun = spark.read.format("ledger").options(**log.options(lake=lake, startingOffsets="snapshot", **options)).load()
    assert begun.count() == made["manifest"]["row_count"] + 50
    assert jobs.run(verify, "--lake", lake, "--no-report")["ok"]
    no_secret(jobs.told, bucket.all_bytes(), past._jdf.queryExecution().toString())
    assert bucket.uploads() == []


def test_a_table_in_a_bucket_follows_and_is_proved(log: Any, bucket: Bucket, jobs: Jobs) -> None:
    table = f"{bucket.uri}/tables/map"
    log.fill(20)
    log.delete(b"key-3")
    jobs.run(materialize, "--table", table, "--available-now")
    log.fill(5)
    assert jobs.run(materialize, "--table", table, "--available-now")["records"] == 50, "only what is new is read"
    rows = {row["key"]: (row["value"], row["_revision"]) for row in table_of(bucket, "tables/map")}
    assert rows == log.state
    assert jobs.run(materialize, "--table", table, "--wait-for", str(log.revision))["revision"] == log.revision
    assert jobs.run(verify, "--table", table, "--no-report")["ok"]
    no_secret(jobs.told, bucket.all_bytes())
    assert not [key for key in bucket.objects() if "checkpoint" in key], "Spark needs no access to the bucket"


def test_histories_in_a_bucket_begin_with_a_lake_there_and_are_looked_after(
    log: Any, bucket: Bucket, jobs: Jobs
) -> None:
    log.fill(20)
    jobs.run(snapshot, "--lake", f"{bucket.uri}/lake")
    first = log.revision
    log.roll()
    log.append([Record(KernelRecord.MACHINE_DESCRIBED, None, (encode_description(MACHINE),))])
    log.trim(1)
    log.fill(5)
    history = ("--tables", f"{bucket.uri}/history", "--mode", "append", "--lake", f"{bucket.uri}/lake")
    jobs.run(materialize, *history, "--available-now", "--optimize-every", "1")
    rows = table_of(bucket, "history/map")
    assert sorted(row["_revision"] for row in rows if row["_revision"] > first) == list(
        range(first + 2, log.revision + 1)
    )
    assert len(rows) == 50 + 50
    log.append([audited_record(1)])
    kept = jobs.run(audit, "--table", f"{bucket.uri}/audit", "--available-now", "--begin-late")
    assert kept["rows"] == len(table_of(bucket, "audit")) == 1
    no_secret(jobs.told, bucket.all_bytes())


def test_what_a_store_refuses_is_one_line_without_a_secret_and_no_table_is_half(
    log: Any, bucket: Bucket, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    log.fill(3)
    table, lake = f"{bucket.uri}/map", f"{bucket.uri}/lake"
    with harmful(bucket.url) as proxy:
        harmed = Jobs(log, capfd, "--storage-options-file", str(bucket.options_file(tmp_path, proxy.url)))
        proxy.rule = times(1000, DENIED)
        for job, arguments in ((materialize, ("--table", table, "--available-now")), (snapshot, ("--lake", lake))):
            refusal = harmed.refused(job, *arguments)
            assert "AccessDenied" in refusal
            assert "refuses these credentials" in refusal
            assert "\n" not in refusal
        proxy.rule = times(1000, DENIED, _writes_rows)
        assert "AccessDenied" in harmed.refused(snapshot, "--lake", lake)
    for place in (f"s3://me:{SECRETS[1]}@{bucket.name}/b", f"{bucket.uri}/b?secret_key={SECRETS[1]}"):
        assert "holds a secret" in harmed.wrong(materialize, "--table", place)
        assert "holds a secret" in harmed.wrong(snapshot, "--lake", place)
        with pytest.raises(OptionError, match="holds a secret"):
            LakeReader(place, "orders", {})
    no_secret(harmed.told, caplog.text, bucket.all_bytes())
    assert bucket.objects() == {}


def _writes_rows(asked: Asked) -> bool:
    return asked.method in {"PUT", "POST"} and ".parquet" in asked.path
