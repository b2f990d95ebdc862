"""Delta tables that follow a log, in S3, against a real server: each goes on from itself alone."""

from __future__ import annotations

import io
import logging
import multiprocessing
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from connectors.delta.follower import FollowerTable
from connectors.delta.place import APPEND_MODE, MERGE_MODE
from connectors.delta.position import TablePosition
from connectors.delta.upkeep import TableUpkeep
from connectors.delta.wait import wait_for
from connectors.errors import DeltaSinkError
from tests.integration.s3_server import (
    EXPIRED,
    SECRETS,
    SLOW_DOWN,
    WRONG_KEY,
    Asked,
    Bucket,
    Harm,
    HarmfulProxy,
    harmful,
    times,
)
from tests.unit.connectors.delta.logged import LOG_ID, MAP, gone, put, records

LOST = Harm(is_lost=True)
FIRST = records([put(b"a", b"1"), put(b"b", b"2"), gone(b"a")])
SECOND = records([put(b"a", b"4"), put(b"b", b"5")], 4)


@pytest.fixture
def proxy(bucket: Bucket) -> Iterator[HarmfulProxy]:
    with harmful(bucket.url) as between:
        yield between


def follower(bucket: Bucket, mode: str = MERGE_MODE) -> FollowerTable:
    return FollowerTable(
        f"{bucket.uri}/tables/map", log_id=LOG_ID, log="orders", table=MAP, position_interval_s=0, mode=mode,
        storage_options=bucket.options(),
    )  # fmt: skip


def is_commit(asked: Asked) -> bool:
    return asked.method == "PUT" and "/_delta_log/" in asked.path


def is_rows(asked: Asked) -> bool:
    return asked.method in {"PUT", "POST"} and ".parquet" in asked.path


def is_read(asked: Asked) -> bool:
    return asked.method in {"GET", "HEAD"}


def no_secret(*told: str) -> None:
    assert not [secret for text in told for secret in SECRETS if secret in text]


def content(bucket: Bucket) -> list[tuple[Any, ...]]:
    table = DeltaTable(f"{bucket.uri}/tables/map", storage_options=bucket.options())
    rows = pa.RecordBatchReader.from_stream(table.scan(columns=["key", "value", "_revision"])).read_all().to_pylist()
    return sorted((row["_revision"], row["key"], row["value"]) for row in rows)


def test_a_table_in_a_bucket_follows_and_goes_on_from_itself_alone(bucket: Bucket) -> None:
    first = records([put(b"a", b"1"), put(b"b", b"2"), gone(b"a")])
    follower(bucket).apply(first)
    assert content(bucket) == [(2, b"b", b"2")]
    assert not follower(bucket).apply(first).is_new, "run again it changes nothing"
    follower(bucket).apply(records([put(b"a", b"4")], 4))
    assert content(bucket) == [(2, b"b", b"2"), (4, b"a", b"4")]
    position = follower(bucket).position()
    assert position is not None
    assert position.revision == 4
    assert not [secret for secret in SECRETS if secret.encode() in bucket.all_bytes()]


def test_a_history_in_a_bucket_keeps_every_change(bucket: Bucket) -> None:
    follower(bucket, mode=APPEND_MODE).apply(records([put(b"a", b"1"), gone(b"a")]))
    follower(bucket, mode=APPEND_MODE).apply(records([put(b"a", b"3")], 3))
    assert [(revision, key) for revision, key, _ in content(bucket)] == [(1, b"a"), (2, b"a"), (3, b"a")]


class Said(NamedTuple):
    """What came of work in another process: `deltalake` lets no other thread of its own process run at times."""

    position: TablePosition | None
    error: str
    shows_context: bool
    logged: str


def _said(work: Callable[[], object]) -> Said:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logging.getLogger().addHandler(handler)
    try:
        done = work()
        position = done if isinstance(done, TablePosition) else None
        return Said(position, "", shows_context=False, logged=stream.getvalue())
    except DeltaSinkError as error:
        return Said(None, str(error), not error.__suppress_context__, stream.getvalue())
    finally:
        logging.getLogger().removeHandler(handler)


def _table(place: str, options: dict[str, str]) -> FollowerTable:
    return FollowerTable(place, log_id=LOG_ID, log="orders", table=MAP, position_interval_s=0, storage_options=options)


def apply_in(place: str, options: dict[str, str], changes: pa.Table) -> Said:
    return _said(lambda: _table(place, options).apply(changes).position)


def wait_in(place: str, options: dict[str, str], revision: int) -> Said:
    def work() -> None:
        wait_for(place, revision, 0, storage_options=options)

    return _said(work)


def keep_up_in(place: str, options: dict[str, str]) -> Said:
    def work() -> None:
        table = _table(place, options)
        table.commit_count = 1
        assert TableUpkeep(optimize_every=1, vacuum_retain_hours=None).after(table) is None

    return _said(work)


class Elsewhere:
    """A follower in another process that reaches the bucket by way of the go-between."""

    def __init__(self, bucket: Bucket, url: str, pool: ProcessPoolExecutor) -> None:
        self.place = f"{bucket.uri}/tables/map"
        self._options, self._pool = bucket.options(url), pool

    def begin(self, changes: pa.Table) -> Future[Said]:
        return self._pool.submit(apply_in, self.place, self._options, changes)

    def apply(self, changes: pa.Table) -> Said:
        return self.begin(changes).result()

    def wait_for(self, revision: int) -> Said:
        return self._pool.submit(wait_in, self.place, self._options, revision).result()

    def keep_up(self) -> Said:
        return self._pool.submit(keep_up_in, self.place, self._options).result()


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as made:
        yield made


@pytest.fixture
def elsewhere(bucket: Bucket, proxy: HarmfulProxy, pool: ProcessPoolExecutor) -> Elsewhere:
    return Elsewhere(bucket, proxy.url, pool)


def operations(bucket: Bucket) -> list[str]:
    """Return what the commits were, newest first."""
    table = DeltaTable(f"{bucket.uri}/tables/map", storage_options=bucket.options())
    return [commit["operation"] for commit in table.history()]


@pytest.mark.parametrize("matches", [is_commit, is_rows, is_read])
@pytest.mark.parametrize("harm", [SLOW_DOWN, LOST])
def test_what_a_store_is_asked_again_is_in_the_table_once(
    bucket: Bucket, proxy: HarmfulProxy, elsewhere: Elsewhere, harm: Harm, matches: Callable[[Asked], bool]
) -> None:
    """A commit that is there although its answer was lost is found; no other one holds the same records."""
    elsewhere.apply(FIRST)
    proxy.rule = times(2, harm, matches)
    said = elsewhere.apply(SECOND)
    assert said.error == ""
    assert content(bucket) == [(4, b"a", b"4"), (5, b"b", b"5")]
    assert follower(bucket).position() == said.position
    assert operations(bucket) == ["MERGE", "WRITE", "CREATE TABLE"]
    assert bucket.uploads() == []


def test_a_commit_that_takes_long_is_overtaken_by_another_writer_and_decided_anew(
    bucket: Bucket, proxy: HarmfulProxy, elsewhere: Elsewhere
) -> None:
    elsewhere.apply(FIRST)
    is_asked, may_go_on = threading.Event(), threading.Event()

    def wait(asked: Asked) -> None:
        if is_commit(asked) and not may_go_on.is_set():
            is_asked.set()
            assert may_go_on.wait(120)

    proxy.rule = wait
    slow = elsewhere.begin(SECOND)
    assert is_asked.wait(120)
    follower(bucket).apply(SECOND)
    may_go_on.set()
    assert slow.result().error == ""
    assert content(bucket) == [(4, b"a", b"4"), (5, b"b", b"5")]
    assert operations(bucket) == ["MERGE", "WRITE", "CREATE TABLE"]


@pytest.mark.parametrize(("harm", "words"), [(EXPIRED, "have expired"), (WRONG_KEY, "refuses these credentials")])
def test_credentials_that_end_half_way_are_told_without_a_secret_and_nothing_is_half(
    bucket: Bucket, proxy: HarmfulProxy, elsewhere: Elsewhere, harm: Harm, words: str
) -> None:
    elsewhere.apply(FIRST)
    before = content(bucket)
    for matches in (is_rows, is_commit, is_read):
        proxy.rule = times(1000, harm, matches)
        said = elsewhere.apply(SECOND)
        assert said.error.startswith(f"{elsewhere.place}: records 4 to 5 could not be committed")
        assert harm.code in said.error
        assert words in said.error
        assert "\n" not in said.error
        assert not said.shows_context, "a trace would show what the library said"
        assert "trying again" in said.logged
        no_secret(said.error, said.logged)
        assert content(bucket) == before
    waited = elsewhere.wait_for(3).error
    assert f"{elsewhere.place}: the table cannot be read: " in waited
    assert words in waited
    no_secret(waited)
    proxy.rule = times(0, harm)
    elsewhere.apply(SECOND)
    elsewhere.apply(records([put(b"c", b"6")], 6))
    proxy.rule = times(1000, harm, is_rows)
    kept = elsewhere.keep_up().logged
    assert "is put off" in kept
    assert words in kept
    no_secret(kept)
    assert content(bucket) == [(4, b"a", b"4"), (5, b"b", b"5"), (6, b"c", b"6")]
