"""Clients of a file store that are not ours: `hdfs dfs`, from pyspark's own JARs, and curl; with large files."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

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
