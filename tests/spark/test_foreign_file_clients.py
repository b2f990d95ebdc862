"""Clients of a file store that are not ours: `hdfs dfs`, from pyspark's own JARs, curl and fsspec; with large files."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import FSSpecHandler, PyFileSystem

from ledger.dev import DevCluster
from tests.integration.file_stores import SERVE
from tests.integration.store_processes import stores
from tests.spark.hadoop_shell import HadoopShell

_MIB = 1024 * 1024


@pytest.fixture(scope="module")
def address(cluster: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("files")
    with stores(cluster.metadata_uri, "files-of-strangers", folder) as running:
        options = ("--http-port", "0", "--ledger-files")
        yield running.start("a", *options, command=SERVE).ready["http_address"]


def test_hdfs_dfs_puts_lists_moves_and_reads(address: str, tmp_path: Path) -> None:
    shell = HadoopShell(tmp_path / "conf", f"webhdfs://{address}")
    dfs, done = shell.run, shell.done
    source = tmp_path / "large"
    source.write_bytes(random.Random(5).randbytes(3 * _MIB + 17))
    done("-mkdir", "-p", "/h/below")
    done("-put", str(source), "/h/below/large")
    done("-mv", "/h/below/large", "/h/moved")
    assert done("-cat", "/h/moved") == source.read_bytes()
    assert done("-tail", "/h/moved") == source.read_bytes()[-1024:], "it reads from an offset on"
    listed = done("-ls", "/h").decode().splitlines()
    assert [line.split()[-1] for line in listed[1:]] == ["/h/below", "/h/moved"]
    done("-appendToFile", str(source), "/h/moved")
    assert done("-du", "-s", "/h").decode().split()[0] == str(2 * source.stat().st_size)
    assert dfs("-put", str(source), "/h/moved").returncode == 1
    done("-rm", "-r", "-skipTrash", "/h")
    assert dfs("-ls", "/h").returncode == 1


def test_curl_sends_and_reads_a_large_file(address: str, tmp_path: Path) -> None:
    def curl(*words: str) -> bytes:
        command = ["curl", "--silent", "--show-error", "--fail", *words]
        return subprocess.run(command, capture_output=True, timeout=300, check=True).stdout

    source, base = tmp_path / "large", f"http://{address}/webhdfs/v1"
    source.write_bytes(random.Random(6).randbytes(5 * _MIB))
    curl("-L", "-X", "PUT", "-T", str(source), f"{base}/c/whole?op=CREATE")
    assert curl(f"{base}/c/whole?op=OPEN") == source.read_bytes()
    # From a pipe: nobody knows the length before.
    with source.open("rb") as file:
        piped = ["curl", "--silent", "--fail", "-L", "-X", "PUT", "-T", "-", f"{base}/c/piped?op=CREATE&data=true"]
        subprocess.run(piped, stdin=file, capture_output=True, timeout=300, check=True)
    assert curl(f"{base}/c/piped?op=OPEN&offset={_MIB - 3}&length=7") == source.read_bytes()[_MIB - 3 : _MIB + 4]


def test_fsspec_lists_writes_moves_and_reads_in_parts(address: str) -> None:
    host, _, port = address.rpartition(":")
    files = fsspec.filesystem("webhdfs", host=host, port=int(port), skip_instance_cache=True)
    content = random.Random(7).randbytes(6 * _MIB + 5)
    files.makedirs("/f/below/deep")
    files.pipe_file("/f/below/large", content)  # It creates an empty file and appends to that, 4 MiB at a time.
    assert files.info("/f/below/large")["size"] == len(content)
    assert files.cat_file("/f/below/large") == content
    assert files.cat_ranges(["/f/below/large"] * 2, [0, 5 * _MIB - 2], [3, 5 * _MIB + 2]) == [
        content[:3], content[5 * _MIB - 2 : 5 * _MIB + 2]
    ]  # fmt: skip
    with files.open("/f/below/large", "rb", block_size=_MIB) as file:
        file.seek(-10, 2)
        assert file.read() == content[-10:]
    with files.open("/f/text", "wt") as text:
        text.write("one\ntwo\n")
    assert files.cat_file("/f/text") == b"one\ntwo\n"
    assert sorted(files.find("/f")) == ["/f/below/large", "/f/text"]
    assert files.glob("/f/*/l*") == ["/f/below/large"]
    assert files.ls("/f") == ["/f/below", "/f/text"]
    assert files.du("/f") == len(content) + 8
    assert files.content_summary("/f")["fileCount"] == 2
    with files.transaction, files.open("/f/at-once", "wb") as file:  # Under another name, then a rename.
        file.write(b"whole")
        assert not files.exists("/f/at-once")
    assert files.cat_file("/f/at-once") == b"whole"
    files.mv("/f/below/large", "/f/moved")
    assert (files.exists("/f/moved"), files.exists("/f/below/large")) == (True, False)
    with pytest.raises(FileNotFoundError):
        files.open("/f/none", "rb")
    with pytest.raises(RuntimeError, match="not empty"):
        files.rm("/f")
    files.rm("/f", recursive=True)
    assert not files.exists("/f")


def test_pandas_and_pyarrow_read_and_write_tables_through_fsspec(address: str) -> None:
    host, _, port = address.rpartition(":")
    flights = pd.DataFrame({"carrier": ["ua", "aa", "ua"] * 1000, "delay": range(3000)})
    base = f"webhdfs://{address}/t"
    for kind in ("csv", "parquet"):
        fsspec.filesystem("webhdfs", host=host, port=int(port)).makedirs("/t", exist_ok=True)
        getattr(flights, f"to_{kind}")(f"{base}/flights.{kind}", index=False)
        read = getattr(pd, f"read_{kind}")(f"{base}/flights.{kind}")
        pd.testing.assert_frame_equal(read, flights)
    files = PyFileSystem(FSSpecHandler(fsspec.filesystem("webhdfs", host=host, port=int(port))))  # type: ignore[abstract]
    table = pa.Table.from_pandas(flights, preserve_index=False)
    ds.write_dataset(
        table, "/t/by-carrier", filesystem=files, format="parquet",
        partitioning=ds.partitioning(pa.schema([("carrier", pa.string())]), flavor="hive"),
    )  # fmt: skip
    found = ds.dataset("/t/by-carrier", filesystem=files, partitioning="hive").to_table(
        filter=ds.field("carrier") == "aa", columns=["delay"]
    )
    assert sorted(found["delay"].to_pylist()) == list(range(1, 3000, 3))
    assert pq.read_table("/t/flights.parquet", columns=["delay"], filesystem=files).num_rows == 3000
