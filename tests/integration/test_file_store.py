"""A file store on real bookies: WebHDFS as Hadoop and curl speak it, every server alike, and the leader killed."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from ledger.dev import DevCluster
from rsm_spark.files.limits import FILE_BYTES_MAX
from tests.integration.file_stores import SERVE, FileCaller, exception_of
from tests.integration.store_processes import stores

pytestmark = pytest.mark.asyncio


async def test_webhdfs_answers_as_hadoop_expects(cluster: DevCluster, tmp_path: Path) -> None:
    with stores(cluster.metadata_uri, "files-alone", tmp_path) as running:
        address = running.start("a", "--http-port", "0", command=SERVE).ready["http_address"]
        async with FileCaller(address) as caller:
            home = await caller.ask("GET", "/", "GETHOMEDIRECTORY", **{"user.name": "ann"})
            assert home.json() == {"Path": "/user/ann"}
            # The client of pyspark must not see one, and the answer must not come in two packets' time.
            assert "content-type" not in home.headers
            first = await caller.ask("PUT", "/d/a b+ü.txt", "CREATE", permission="640", **{"user.name": "ann"})
            assert (first.status_code, first.content) == (307, b"")
            told = await caller.ask("PUT", "/d/f", "CREATE", noredirect="true")
            assert set(told.json()) == {"Location"}
            made = await caller.http.put(first.headers["location"], content=b"hello")
            assert (made.status_code, made.content) == (201, b"")
            status = (await caller.ask("GET", "/d/a b+ü.txt", "GETFILESTATUS")).json()["FileStatus"]
            wanted = {"type": "FILE", "length": 5, "owner": "ann", "permission": "640", "pathSuffix": ""}
            assert {name: status[name] for name in wanted} == wanted
            assert await caller.names("/d") == ["a b+ü.txt"]
            assert await caller.read("/d/a b+ü.txt", offset=1, length=3) == b"ell"
            assert (await caller.append("/d/a b+ü.txt", b" world")).status_code == 200
            assert await caller.read("/d/a b+ü.txt") == b"hello world"
            assert exception_of(await caller.create("/d/a b+ü.txt", b"")) == "FileAlreadyExistsException"
            assert (await caller.create("/d/a b+ü.txt", b"new", overwrite="true")).status_code == 201
            await _rename_and_delete(caller)
            await _look_and_set(caller)
            await _refuse(caller)


async def _rename_and_delete(caller: FileCaller) -> None:
    async def rename(source: str, destination: str, **options: str) -> object:
        answer = await caller.ask("PUT", source, "RENAME", destination=destination, **options)
        return answer.json() if answer.content else answer.status_code

    await caller.create("/r/f", b"1")
    await caller.create("/r/g", b"2")
    assert await rename("/r/f", "/r/g") == {"boolean": False}
    refused = await caller.ask("PUT", "/r/f", "RENAME", destination="/r/g", renameoptions="NONE")
    assert (refused.status_code, exception_of(refused)) == (403, "FileAlreadyExistsException")
    assert await rename("/r/f", "/r/g", renameoptions="OVERWRITE") == 200
    assert await rename("/r/g", "/r/h") == {"boolean": True}
    assert await caller.read("/r/h") == b"1"
    full = await caller.ask("DELETE", "/r", "DELETE")
    assert exception_of(full) == "PathIsNotEmptyDirectoryException"
    assert (await caller.ask("DELETE", "/r", "DELETE", recursive="true")).json() == {"boolean": True}
    assert (await caller.ask("DELETE", "/r", "DELETE", recursive="true")).json() == {"boolean": False}


async def _look_and_set(caller: FileCaller) -> None:
    assert (await caller.ask("PUT", "/s/t", "MKDIRS")).json() == {"boolean": True}
    await caller.create("/s/f", b"12345")
    assert (await caller.ask("PUT", "/s/f", "SETTIMES", modificationtime=1000, accesstime=-1)).status_code == 200
    assert (await caller.ask("PUT", "/s/f", "SETPERMISSION", permission="600")).status_code == 200
    status = (await caller.ask("GET", "/s/f", "GETFILELINKSTATUS")).json()["FileStatus"]
    assert (status["modificationTime"], status["permission"]) == (1000, "600")
    assert (await caller.ask("PUT", "/s", "SETQUOTA", namespacequota=5, storagespacequota=10)).status_code == 200
    summary = (await caller.ask("GET", "/s", "GETCONTENTSUMMARY")).json()["ContentSummary"]
    assert {name: summary[name] for name in ("directoryCount", "fileCount", "length", "quota", "spaceQuota")} == {
        "directoryCount": 2, "fileCount": 1, "length": 5, "quota": 5, "spaceQuota": 10,
    }  # fmt: skip
    assert exception_of(await caller.create("/s/g", b"123456")) == "DSQuotaExceededException"
    used = (await caller.ask("GET", "/s", "GETQUOTAUSAGE")).json()["QuotaUsage"]
    assert used["fileAndDirectoryCount"] == 3
    assert (await caller.ask("GET", "/s/f", "CHECKACCESS", fsaction="rw-")).status_code == 200
    (place,) = (await caller.ask("GET", "/s/f", "GETFILEBLOCKLOCATIONS")).json()["BlockLocations"]["BlockLocation"]
    assert (place["offset"], place["length"]) == (0, 5)
    batch = (await caller.ask("GET", "/s", "LISTSTATUS_BATCH", startAfter="f")).json()["DirectoryListing"]
    assert [one["pathSuffix"] for one in batch["partialListing"]["FileStatuses"]["FileStatus"]] == ["t"]
    assert batch["remainingEntries"] == 0
    assert "blocksize" in (await caller.ask("GET", "/", "GETSERVERDEFAULTS")).json()["FsServerDefaults"]


async def _refuse(caller: FileCaller) -> None:
    for method, path, operation, status, exception in (
        ("GET", "/nothing", "GETFILESTATUS", 404, "FileNotFoundException"),
        ("GET", "/d", "OPEN", 404, "FileNotFoundException"),
        ("GET", "/d/a:b", "LISTSTATUS", 400, "IllegalArgumentException"),
        ("GET", "/", "GETDELEGATIONTOKEN", 405, "UnsupportedOperationException"),
        ("PUT", "/x", "CREATESYMLINK", 405, "UnsupportedOperationException"),
        ("GET", "/x", "CREATE", 405, "UnsupportedOperationException"),
        ("PUT", "/x", "RENAME", 400, "IllegalArgumentException"),
        ("GET", "/", "", 400, "IllegalArgumentException"),
    ):
        answer = await caller.http.request(method, path, params={"op": operation})
        assert (answer.status_code, exception_of(answer)) == (status, exception), (operation, answer.text)
    first_line, text = await _head_alone(caller, FILE_BYTES_MAX + 1)
    assert b" 403 " in first_line, first_line
    assert b"a file has at most" in text
    assert exception_of(await caller.ask("GET", "/d", "LISTSTATUS", doas="root")) == "AccessControlException"
    assert (await caller.http.get("http://" + caller.http.base_url.netloc.decode() + "/other")).status_code == 404


async def _head_alone(caller: FileCaller, length: int) -> tuple[bytes, bytes]:
    """Ask to write so many bytes, and send none; return the first line and the body of the answer."""
    host, port = caller.http.base_url.host, caller.http.base_url.port
    assert port is not None
    reader, writer = await asyncio.open_connection(host, port)
    head = f"PUT /webhdfs/v1/large?op=CREATE&data=true HTTP/1.1\r\nHost: {host}:{port}\r\n"
    writer.write(f"{head}Content-Length: {length}\r\n\r\n".encode())
    status = await reader.readline()
    text = await reader.readuntil(b"}}")
    writer.close()
    return status, text


async def test_long_files_are_there_whole_at_every_server_or_not_at_all(cluster: DevCluster, tmp_path: Path) -> None:
    content = random.Random(7).randbytes(5 * 1024 * 1024 + 123)
    with stores(cluster.metadata_uri, "files-long", tmp_path) as running:
        addresses = [running.start(name, "--http-port", "0", command=SERVE).ready["http_address"] for name in "ab"]
        async with FileCaller(addresses[0]) as one, FileCaller(addresses[1]) as two:
            for caller, other, path in ((one, two, "/long/one"), (two, one, "/long/two")):
                assert (await caller.create(path, content)).status_code == 201
                assert await other.read(path) == content
                assert await other.read(path, offset=1_000_000, length=3_000_000) == content[1_000_000:4_000_000]
                assert exception_of(await caller.create(path, content)) == "FileAlreadyExistsException"
            assert (await one.append("/long/one", content)).status_code == 200
            assert await two.read("/long/one") == content * 2
            # A client that goes in the middle leaves nothing, and what it has sent is forgotten.
            await _break_off(one, "/long/three", content)
            assert await two.names("/long") == ["one", "two"]
            metrics = f"http://{addresses[0]}/metrics"
            while "rsm_files_uploads 0" not in (await one.http.get(metrics)).text:
                await asyncio.sleep(0.05)
            assert (await one.create("/long/three", content[:10])).status_code == 201


async def _break_off(caller: FileCaller, path: str, content: bytes) -> None:
    """Send the first part of a file, then close the connection."""
    host, port = caller.http.base_url.host, caller.http.base_url.port
    assert port is not None
    _, writer = await asyncio.open_connection(host, port)
    head = f"PUT /webhdfs/v1{path}?op=CREATE&data=true HTTP/1.1\r\nHost: {host}:{port}\r\n"
    writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content[: 3 * 1024 * 1024])
    await writer.drain()
    metrics = f"http://{host}:{port}/metrics"
    while "rsm_files_uploads 1" not in (await caller.http.get(metrics)).text:
        await asyncio.sleep(0.02)
    writer.close()


async def test_every_server_reads_what_any_of_them_wrote_and_writes_go_on_when_the_leader_is_killed(
    cluster: DevCluster, tmp_path: Path
) -> None:
    options = ("--http-port", "0", "--session-timeout-ms", "2000")
    with stores(cluster.metadata_uri, "files-of-three", tmp_path) as running:
        addresses = {
            name: running.start(name, *options, command=SERVE).ready["http_address"] for name in ("a", "b", "c")
        }
        leader = (await running.leader()).replica_id
        others = [name for name in addresses if name != leader]
        async with FileCaller(addresses[others[0]]) as one, FileCaller(addresses[others[1]]) as two:
            for number in range(20):
                assert (await one.create(f"/w/{number}", b"%d" % number)).status_code == 201
                assert await two.read(f"/w/{number}") == b"%d" % number
            writing = asyncio.create_task(_write_on(one, 60))
            await asyncio.sleep(0)
            while await two.names("/w") == [str(number) for number in range(20)]:
                await asyncio.sleep(0.01)
            running.gone(leader).kill()
            assert await writing == 60, "a write was refused, or done twice"
            assert sorted(await two.names("/on")) == sorted(f"{number}.done" for number in range(60))
            for number in range(0, 60, 7):
                assert await two.read(f"/on/{number}.done") == b"%d" % number
        # Who comes back has all of it.
        back = running.start(leader, *options, command=SERVE).ready["http_address"]
        async with FileCaller(back) as again:
            assert len(await again.names("/on")) == 60


async def _write_on(caller: FileCaller, count: int) -> int:
    """Write as Spark writes checkpoints: a temporary file, then a rename; return how often each was done once."""
    done = 0
    for number in range(count):
        made = await caller.create(f"/on/.{number}.tmp", b"%d" % number)
        moved = await caller.ask(
            "PUT", f"/on/.{number}.tmp", "RENAME", destination=f"/on/{number}.done", renameoptions="NONE"
        )
        if number == 0:
            await caller.ask("PUT", "/w/now", "MKDIRS")
        done += made.status_code == 201 and moved.status_code == 200
    return done


async def test_the_command_line_lists_reads_writes_and_moves(cluster: DevCluster, tmp_path: Path) -> None:
    def rsm(*words: str, given: bytes = b"", code: int = 0) -> bytes:
        command = [sys.executable, "-m", "rsm_spark", "files", *words]
        command += ["--log", "files-by-hand", "--metadata-uri", cluster.metadata_uri]
        done = subprocess.run(command, input=given, capture_output=True, timeout=120, check=False)
        assert done.returncode == code, done.stderr.decode()
        return done.stdout

    with stores(cluster.metadata_uri, "files-by-hand", tmp_path) as running:
        running.start("a", "--http-port", "0", command=SERVE)
        source = tmp_path / "source"
        source.write_bytes(b"text\n" * 500_000)
        await asyncio.to_thread(rsm, "put", str(source), "/in/f")
        await asyncio.to_thread(rsm, "put", "-", "/in/g", given=b"piped")
        await asyncio.to_thread(rsm, "put", "-", "/in/g", given=b"again", code=7)
        assert await asyncio.to_thread(rsm, "cat", "/in/f") == source.read_bytes()
        copy = tmp_path / "copy"
        await asyncio.to_thread(rsm, "get", "/in/f", str(copy))
        assert copy.read_bytes() == source.read_bytes()
        await asyncio.to_thread(rsm, "mv", "/in/g", "/in/h")
        listed = [json.loads(line) for line in (await asyncio.to_thread(rsm, "ls", "/in", "--json")).splitlines()]
        assert [(one["name"], one["size"]) for one in listed] == [("f", 2_500_000), ("h", 5)]
        await asyncio.to_thread(rsm, "quota", "/in", "--names", "9")
        summed = json.loads(await asyncio.to_thread(rsm, "du", "/in", "--json"))
        assert (summed["files"], summed["size"], summed["names_max"]) == (2, 2_500_005, 9)
        told = await asyncio.to_thread(rsm, "du", "/in")
        assert told == b"2.4 MiB in 2 files and 1 directories, quota 9 names\n"
        await asyncio.to_thread(rsm, "rm", "/in", code=7)
        await asyncio.to_thread(rsm, "rm", "-r", "/in")
        await asyncio.to_thread(rsm, "cat", "/in/f", code=4)
