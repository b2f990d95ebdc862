"""S3 as a place of files, against a real server: whole or not at all, whatever happens on the way."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest
from botocore.exceptions import ClientError

from rsm_spark.backup.manifest import BackupError, CorruptBackupError
from rsm_spark.backup.place import BackupPlace
from rsm_spark.object_stores.complaints import ObjectStoreError
from rsm_spark.object_stores.s3 import S3Store
from rsm_spark.object_stores.unfinished import Unfinished
from tests.integration.s3_server import (
    DENIED,
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

_MIB = 1 << 20


@pytest.fixture
def proxy(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[HarmfulProxy]:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "3")
    with harmful(bucket.url) as between:
        yield between


def store_of(bucket: Bucket, proxy: HarmfulProxy) -> S3Store:
    """Return a store that writes in parts what is longer than 6 MiB."""
    options = bucket.options(proxy.url)
    return S3Store(f"{bucket.uri}/root", options, put_bytes_max=6 * _MIB, part_bytes=5 * _MIB)


def file_of(folder: Path, size: int) -> Path:
    path = folder / f"file-{size}"
    path.write_bytes(random.Random(size).randbytes(size))
    return path


def is_part(asked: Asked, number: int) -> bool:
    return asked.method == "PUT" and f"partNumber={number}" in asked.path


def is_completion(asked: Asked) -> bool:
    return asked.method == "POST" and "uploadId=" in asked.path


@pytest.mark.parametrize("size", [0, 1, 6 * _MIB, 6 * _MIB + 1, 17 * _MIB])
def test_what_is_written_is_read_back(bucket: Bucket, proxy: HarmfulProxy, tmp_path: Path, size: int) -> None:
    store, source = store_of(bucket, proxy), file_of(tmp_path, size)
    store.copy_in(source, "a/b")
    store.put("a/c", b"short")
    assert store.sizes("a") == {"b": size, "c": 5}
    assert store.sizes("") == {"a/b": size, "a/c": 5}
    assert store.sizes("a/") == store.sizes("a")
    assert store.sizes("nothing") == {}
    with store.open("a/b") as file:
        assert file.read(10) + file.read() == source.read_bytes()
    with pytest.raises(FileNotFoundError), store.open("a/d") as file:
        file.read()
    assert store.unfinished("") == []
    store.delete("a/b")
    store.delete("a/b")
    assert bucket.objects() == {"root/a/c": 5}


@pytest.mark.parametrize("harm", [DENIED, EXPIRED])
@pytest.mark.parametrize("number", [1, 2, 4])
def test_an_upload_that_fails_leaves_neither_an_object_nor_parts(
    bucket: Bucket, proxy: HarmfulProxy, tmp_path: Path, number: int, harm: Harm
) -> None:
    store = store_of(bucket, proxy)
    proxy.rule = times(9, harm, lambda asked: is_part(asked, number))
    with pytest.raises(ObjectStoreError, match=harm.code):
        store.copy_in(file_of(tmp_path, 17 * _MIB), "a/b")
    assert bucket.objects() == {}
    assert bucket.uploads() == []
    proxy.rule = times(9, harm, is_completion)
    with pytest.raises(ObjectStoreError, match=harm.code):
        store.copy_in(file_of(tmp_path, 17 * _MIB), "a/b")
    assert (bucket.objects(), bucket.uploads()) == ({}, [])


def test_a_source_that_cannot_be_read_to_its_end_leaves_nothing(
    bucket: Bucket, proxy: HarmfulProxy, tmp_path: Path
) -> None:
    store, source = store_of(bucket, proxy), file_of(tmp_path, 17 * _MIB)

    def cut(asked: Asked) -> None:
        if is_part(asked, 2):
            raise_in_reader.append(True)

    raise_in_reader: list[bool] = []
    proxy.rule = cut
    opened = Path.open

    class _Cut:
        def __init__(self, path: Path) -> None:
            self._file = opened(path, "rb")

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *error: object) -> None:
            self._file.close()

        def read(self, count: int) -> bytes:
            if raise_in_reader:
                raise OSError(5, "Input/output error")
            return self._file.read(count)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Path, "open", lambda path, _mode: _Cut(path))
        with pytest.raises(OSError, match="Input/output error"):
            store.copy_in(source, "a/b")
    assert (bucket.objects(), bucket.uploads()) == ({}, [])


def test_a_completion_whose_answer_is_lost_is_one(bucket: Bucket, proxy: HarmfulProxy, tmp_path: Path) -> None:
    store, source = store_of(bucket, proxy), file_of(tmp_path, 7 * _MIB)
    proxy.rule = times(1, Harm(is_lost=True), is_completion)
    store.copy_in(source, "a/b")
    assert bucket.get("root/a/b") == source.read_bytes()
    assert bucket.uploads() == []


def test_a_store_that_has_too_much_to_do_is_asked_again(bucket: Bucket, proxy: HarmfulProxy, tmp_path: Path) -> None:
    store, source = store_of(bucket, proxy), file_of(tmp_path, 7 * _MIB)
    proxy.rule = times(2, SLOW_DOWN)
    store.copy_in(source, "a/b")
    for matches in (lambda asked: is_part(asked, 2), is_completion):
        proxy.rule = times(2, SLOW_DOWN, matches)
        store.copy_in(source, "a/b")
    assert bucket.get("root/a/b") == source.read_bytes()
    proxy.rule = times(99, SLOW_DOWN)
    with pytest.raises(ObjectStoreError, match=r"SlowDown.*try again later"):
        store.copy_in(source, "a/c")
    assert bucket.objects() == {"root/a/b": 7 * _MIB}


def test_a_reader_that_is_cut_off_goes_on_where_it_was(bucket: Bucket, proxy: HarmfulProxy, tmp_path: Path) -> None:
    store, source = store_of(bucket, proxy), file_of(tmp_path, 17 * _MIB)
    store.copy_in(source, "a/b")
    proxy.rule = times(3, Harm(cut_at=2 * _MIB + 7), lambda asked: asked.method == "GET")
    with store.open("a/b") as file:
        assert b"".join(iter(lambda: file.read(_MIB), b"")) == source.read_bytes()
    proxy.rule = times(99, Harm(cut_at=0), lambda asked: asked.method == "GET")
    with pytest.raises(ObjectStoreError, match="broke off at byte 0"), store.open("a/b") as file:
        file.read(_MIB)


def test_a_reader_does_not_go_on_in_another_object(bucket: Bucket, proxy: HarmfulProxy, tmp_path: Path) -> None:
    store = store_of(bucket, proxy)
    store.copy_in(file_of(tmp_path, 5 * _MIB), "a/b")
    proxy.rule = times(1, Harm(cut_at=_MIB), lambda asked: asked.method == "GET")
    with store.open("a/b") as file:
        file.read(_MIB)
        bucket.put("root/a/b", b"y" * (5 * _MIB))
        with pytest.raises(ClientError, match="PreconditionFailed"):
            file.read(4 * _MIB)


def test_what_a_killed_writer_has_left_is_found_and_removed(
    bucket: Bucket, proxy: HarmfulProxy, tmp_path: Path
) -> None:
    source = file_of(tmp_path, 17 * _MIB)
    victim = subprocess.Popen(
        [sys.executable, "-c", _WRITER, f"{bucket.uri}/root", str(source)],
        cwd=Path(__file__).parents[2], env=bucket.environment(proxy.url),
    )  # fmt: skip

    def kill(asked: Asked) -> None:
        if is_part(asked, 3):
            victim.send_signal(signal.SIGKILL)
            victim.wait(60)

    proxy.rule = kill
    try:
        assert victim.wait(120) == -signal.SIGKILL
    finally:
        victim.kill()
        victim.wait()
    store = store_of(bucket, proxy)
    assert bucket.objects() == {}
    assert bucket.uploads() == ["root/log/id/entries/file"]
    assert store.unfinished("other") == []
    (left,) = store.unfinished("log/id")
    assert left.path == "entries/file"
    place = BackupPlace(f"{bucket.uri}/root", bucket.options())
    (told,) = place.unfinished("log/id")
    assert told == Unfinished("log/id/entries/file", left.upload_id, left.begun_s)
    place.discard(told)
    place.discard(told)
    assert bucket.uploads() == []


_WRITER = """
import sys
from pathlib import Path
from typing import Self
from rsm_spark.object_stores.s3 import S3Store
store = S3Store(sys.argv[1], put_bytes_max=6 << 20, part_bytes=5 << 20)
store.copy_in(Path(sys.argv[2]), "log/id/entries/file")
"""


def test_a_place_that_does_not_list_uploads_is_one_all_the_same(
    bucket: Bucket, proxy: HarmfulProxy, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.rule = times(9, DENIED, lambda asked: "uploads" in asked.path)
    place = BackupPlace(f"{bucket.uri}/root", bucket.options(proxy.url))
    assert place.unfinished("log") == []
    assert "AccessDenied" in caplog.text
    assert "lifecycle" in caplog.text


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (DENIED, "refuses these credentials"),
        (WRONG_KEY, "refuses these credentials"),
        (EXPIRED, "have expired: give new ones"),
        (SLOW_DOWN, "too much to do"),
        (Harm(500, "InternalError", "We encountered an internal error."), "the store failed"),
        (Harm(403, "RequestTimeTooSkewed", "The difference is too large."), "clock of this machine"),
    ],
)
def test_each_refusal_is_one_line_that_says_what_to_do_and_tells_no_secret(
    bucket: Bucket, proxy: HarmfulProxy, harm: Harm, words: str, tmp_path: Path
) -> None:
    place = BackupPlace(f"{bucket.uri}/root", bucket.options(proxy.url))
    bucket.put("root/log/file", b"x")
    proxy.rule = times(99, harm)
    for what, call in {
        "listed": lambda: place.sizes("log"),
        "read": lambda: place.read("log/file", 10),
        "written": lambda: place.put("log/new", b"y"),
        "removed": lambda: place.delete("log/file"),
    }.items():
        with pytest.raises(BackupError) as raised:
            call()
        told = str(raised.value)
        assert not isinstance(raised.value, CorruptBackupError)
        assert told.startswith(f"{bucket.uri}/root/log"), told
        assert f"cannot be {what}: " in told
        assert harm.code in told
        assert words in told
        assert "\n" not in told
        assert not [secret for secret in SECRETS if secret in told]
        assert raised.value.__suppress_context__, "a trace would show what the library said"
    assert bucket.objects() == {"root/log/file": 1}


def test_a_bucket_that_is_not_there_credentials_that_are_not_given_and_a_store_that_is_away(
    bucket: Bucket, proxy: HarmfulProxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(BackupError, match=r"no-such-bucket.*make it, or name another"):
        BackupPlace("s3://no-such-bucket/x", bucket.options()).sizes("")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    bare = {"aws_endpoint_url": bucket.url, "aws_region": "us-east-1"}
    with pytest.raises(BackupError, match="there are no credentials: give AWS_ACCESS_KEY_ID"):
        BackupPlace(bucket.uri, bare).sizes("")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    away = bucket.options("http://127.0.0.1:1")
    with pytest.raises(BackupError, match="cannot be reached: look at the network"):
        BackupPlace(bucket.uri, away).put("a", b"x")


def test_the_address_may_name_endpoint_and_region(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in bucket.environment().items():
        if name.startswith("AWS_") and name != "AWS_ENDPOINT_URL":
            monkeypatch.setenv(name, value)
    host = bucket.url.removeprefix("http://")
    place = BackupPlace(f"{bucket.uri}/root?endpoint_override={host}&scheme=http&region=us-east-1")
    place.put("a", b"x")
    assert bucket.objects() == {"root/a": 1}
