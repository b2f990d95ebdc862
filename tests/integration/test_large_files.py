"""Files in ledgers of their own, on real bookies: read at every server, freed; little memory."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ledger.client.client import LedgerClient
from ledger.dev import DevCluster
from ledger.errors import NoSuchLedgerError
from rsm_spark.core.orphans import content_number
from tests.integration.file_stores import SERVE, FileCaller, exception_of
from tests.integration.store_processes import stores

pytestmark = pytest.mark.asyncio

_MIB = 1024 * 1024
_TRIMMED = ("--roll-s", "1", "--retention-s", "0", "--trim-s", "0.5", "--checkpoint-records", "5", "--snapshot-s", "1")
_OPTIONS = ("--http-port", "0", "--ledger-files", "--verify-s", "0.5", *_TRIMMED)


async def _contents(client: LedgerClient) -> dict[int, int]:
    """Return the ledgers that hold files, with how many entries each has."""
    found = {}
    for ledger in await client.list():
        with contextlib.suppress(NoSuchLedgerError):  # Trimmed meanwhile.
            metadata = await client.metadata(ledger)
            if content_number(metadata.custom) is not None:
                found[ledger] = metadata.last_entry_id + 1
    return found


async def _metric(caller: FileCaller, name: str) -> float:
    text = (await caller.http.get(f"http://{caller.http.base_url.netloc.decode()}/metrics")).text
    found = re.search(rf"^{name} (.+)$", text, re.MULTILINE)
    assert found is not None, name
    return float(found[1])


async def test_a_large_file_is_read_at_every_server_and_its_space_is_freed(cluster: DevCluster, tmp_path: Path) -> None:
    content = random.Random(9).randbytes(5 * _MIB + 123)
    async with await LedgerClient.connect(cluster.metadata_uri) as client:
        with stores(cluster.metadata_uri, "files-large", tmp_path) as running:
            addresses = [running.start(name, *_OPTIONS, command=SERVE).ready["http_address"] for name in "ab"]
            async with FileCaller(addresses[0]) as one, FileCaller(addresses[1]) as two:
                for caller, other, path in ((one, two, "/l/one"), (two, one, "/l/two")):
                    assert (await caller.create(path, content)).status_code == 201
                    assert await other.read(path) == content
                    assert await other.read(path, offset=_MIB - 1, length=2) == content[_MIB - 1 : _MIB + 1]
                    assert await other.read(path, offset=len(content) - 5) == content[-5:]
                    assert exception_of(await caller.create(path, b"")) == "FileAlreadyExistsException"
                assert sorted((await _contents(client)).values()) == [7, 7], "six chunks and an index each"
                assert (await one.append("/l/one", b"behind it")).status_code == 200
                assert await two.read("/l/one", offset=len(content) - 3) == content[-3:] + b"behind it"
                # A client that goes in the middle: what it has sent goes at once. Files that are gone are freed later.
                await _break_off(one, "/l/three", content)
                assert (await one.create("/l/one", content[:2_000_000], overwrite="true")).status_code == 201
                assert (await two.ask("DELETE", "/l/two", "DELETE")).json() == {"boolean": True}
                number = 0
                while len(await _contents(client)) > 1:  # The log has to go on, so that it is trimmed.
                    number += 1
                    assert (await one.create(f"/small/{number}", b"x")).status_code == 201
                    await asyncio.sleep(0.2)
                assert await two.read("/l/one") == content[:2_000_000]
                assert sum([await _metric(one, "rsm_files_ledgers_deleted_total"),
                            await _metric(two, "rsm_files_ledgers_deleted_total")]) == 3  # fmt: skip
                printed = await asyncio.to_thread(_rsm, cluster, "files", "cat", "/l/one", "--log", "files-large")
                assert printed.stdout == content[:2_000_000]
            for name in "ab":  # In an orderly way, so that nobody takes them for running.
                running.gone(name).stop()
        # Whoever begins with a snapshot has what it names.
        with stores(cluster.metadata_uri, "files-large", tmp_path) as running:
            address = running.start("a", *_OPTIONS, command=SERVE).ready["http_address"]
            async with FileCaller(address) as again:
                assert await again.read("/l/one") == content[:2_000_000]
            running.gone("a").stop()
        await asyncio.to_thread(_rsm, cluster, "log", "delete", "files-large", "--yes")
        assert await _contents(client) == {}, "the log's contents go with it"


def _rsm(cluster: DevCluster, *words: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "rsm_spark", *words, "--metadata-uri", cluster.metadata_uri]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done


async def _break_off(caller: FileCaller, path: str, content: bytes) -> None:
    """Send the first part of a file, then close the connection."""
    host, port = caller.http.base_url.host, caller.http.base_url.port
    assert port is not None
    _, writer = await asyncio.open_connection(host, port)
    head = f"PUT /webhdfs/v1{path}?op=CREATE&data=true HTTP/1.1\r\nHost: {host}:{port}\r\n"
    writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content[: 3 * _MIB])
    await writer.drain()
    while await _metric(caller, "rsm_files_uploads") != 1:
        await asyncio.sleep(0.02)
    writer.close()
    while await _metric(caller, "rsm_files_uploads") != 0:
        await asyncio.sleep(0.02)


async def test_memory_does_not_grow_with_the_file(cluster: DevCluster, tmp_path: Path) -> None:
    length = 256 * _MIB
    block = random.Random(1).randbytes(_MIB)

    async def sent() -> AsyncIterator[bytes]:
        for number in range(length // _MIB):
            yield number.to_bytes(8, "big") + block[8:]

    with stores(cluster.metadata_uri, "files-memory", tmp_path) as running:
        server = running.start("a", "--http-port", "0", "--ledger-files", command=SERVE)
        async with FileCaller(server.ready["http_address"]) as caller:
            await caller.create("/warm", block * 3)
            assert await caller.read("/warm") == block * 3
            before = _peak_bytes(server.process.pid)
            first = await caller.ask("PUT", "/large", "CREATE")
            made = await caller.http.put(first.headers["location"], content=sent(), timeout=600)
            assert made.status_code == 201, made.text
            whole, wanted = hashlib.sha256(), hashlib.sha256()
            async with caller.http.stream("GET", "/large", params={"op": "OPEN"}, timeout=600) as answer:
                assert answer.status_code == 200
                async for part in answer.aiter_bytes():
                    whole.update(part)
            async for one in sent():
                wanted.update(one)
            assert whole.digest() == wanted.digest()
            grown = _peak_bytes(server.process.pid) - before
            assert grown < 96 * _MIB, f"{grown / _MIB:.0f} MiB more for a file of {length / _MIB:.0f} MiB"


def _peak_bytes(pid: int) -> int:
    """Return what a process had in memory at most."""
    found = re.search(r"^VmHWM:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024
