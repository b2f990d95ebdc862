"""Each operation of WebHDFS by Hadoop's own client, the leader killed in the middle: asked again, it is done once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from tests.integration.file_stores import FileCaller
from tests.integration.store_processes import stores
from tests.spark.counting_query import name_service
from tests.spark.file_kill_points import OPERATION_POINTS, FileKillPoint, armed_file, mark_of
from tests.spark.killed_store import KilledStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ledger.dev import DevCluster

_OLD = random.Random(3).randbytes(3_000_000)
_NEW, _LARGE = b"something new", random.Random(4).randbytes(5_000_000)
_TRIES = 3
_QUICK = {"rename: done", "append: sent", "open a large file: its second chunk"}


class HadoopFiles:
    """Hadoop's client, and what a program does that uses it: what fails is looked at, and done again if it was not.

    Args:
        spark: Session whose JVM has the client.
        uri: Of the file system.

    """

    def __init__(self, spark: SparkSession, uri: str) -> None:
        self._jvm: Any = spark._jvm
        conf = spark._jsparkSession.sessionState().newHadoopConf()
        self._files = self._jvm.org.apache.hadoop.fs.FileSystem.newInstance(self._jvm.java.net.URI(uri), conf)

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(name)

    def done(self, act: Callable[[], Any], is_done: Callable[[], bool]) -> None:
        """Do something until it is done."""
        errors = []
        for _ in range(_TRIES):
            try:
                act()
            except Py4JJavaError as error:
                errors.append(str(error)[:2000])
            if is_done():
                return
        raise AssertionError(errors)

    def write(self, content: bytes) -> None:
        stream = self._files.create(self._path("/made"), True)
        stream.write(bytearray(content))
        stream.close()

    def append(self) -> None:
        stream = self._files.append(self._path("/old"))
        stream.write(bytearray(_NEW))
        stream.close()

    def read(self, name: str) -> bytes:
        stream = self._files.open(self._path(name))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def size(self, name: str) -> int:
        """Return the bytes of a file; -1 = there is none."""
        path = self._path(name)
        return int(self._files.getFileStatus(path).getLen()) if self._files.exists(path) else -1

    def names(self) -> list[str]:
        return sorted(one.getPath().getName() for one in self._files.listStatus(self._path("/")))

    def rename(self) -> None:
        self._files.rename(self._path("/old"), self._path("/made"))

    def make_directory(self) -> None:
        self._files.mkdirs(self._path("/made"))

    def delete(self) -> None:
        self._files.delete(self._path("/old"), False)


def _play(files: HadoopFiles, operation: str) -> dict[str, bytes | None]:
    """Do what a point is about; return what is there then: contents by name, None = a directory."""
    match operation:
        case "create":
            files.done(lambda: files.write(_NEW), lambda: files.size("/made") == len(_NEW))
            return {"old": _OLD, "made": _NEW}
        case "create a large file" | "end a large file":
            files.done(lambda: files.write(_LARGE), lambda: files.size("/made") == len(_LARGE))
            return {"old": _OLD, "made": _LARGE}
        case "append":
            files.done(files.append, lambda: files.size("/old") > len(_OLD))
            return {"old": _OLD + _NEW}
        case "rename":
            files.done(files.rename, lambda: files.names() == ["made"])
            return {"made": _OLD}
        case "make a directory":
            files.done(files.make_directory, lambda: files.names() == ["made", "old"])
            return {"old": _OLD, "made": None}
        case "delete":
            files.done(files.delete, lambda: files.names() == [])
            return {}
    # Questions: Hadoop's client asks them again by itself.
    assert files.size("/old") == len(_OLD)
    assert files.names() == ["old"]
    assert files.read("/old") == _OLD
    return {"old": _OLD}


async def _found(address: str) -> dict[str, bytes | None]:
    async with FileCaller(address) as caller:
        listed = (await caller.ask("GET", "/", "LISTSTATUS")).json()["FileStatuses"]["FileStatus"]
        kinds = {one["pathSuffix"]: one["type"] for one in listed}
        return {name: None if kind == "DIRECTORY" else await caller.read(f"/{name}") for name, kind in kinds.items()}


async def _write_old(address: str) -> None:
    async with FileCaller(address) as caller:
        assert (await caller.create("/old", _OLD)).status_code == 201


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "point",
    [
        pytest.param(p, marks=[] if p.name in _QUICK else pytest.mark.slow, id=p.name.replace(" ", "_"))
        for p in OPERATION_POINTS
    ],
)
def test_an_operation_whose_leader_was_killed_is_done_once(
    point: FileKillPoint, spark: SparkSession, cluster: DevCluster, tmp_path: Path
) -> None:
    with stores(cluster.metadata_uri, f"files-of-{tmp_path.name}", tmp_path) as running:
        store = KilledStore(running, point, tmp_path)
        name = name_service(spark, tmp_path.name.replace("_", "-"), store.addresses)
        asyncio.run(_write_old(store.addresses[0]))
        armed_file(tmp_path).touch()
        expected = _play(HadoopFiles(spark, f"webhdfs://{name}"), point.name.partition(":")[0])
        assert mark_of(tmp_path).exists(), f"nobody came by: {point.name}"
        assert asyncio.run(_found(store.left())) == expected
