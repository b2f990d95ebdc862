"""A bookie whose disk runs full: a small file system of its own, filled by adds until it refuses."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger import LedgerClient, WriteHandle
from ledger.dev.ports import choose_port
from ledger.errors import LedgerError, NotEnoughBookiesError

_SIZE_MIB = 128
_PAYLOAD = bytes(range(256)) * 256
_LEDGER_ENTRIES = 100
_ONE: dict[str, Any] = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={_SIZE_MIB}m", "none", str(folder)]
    mounted = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"cannot mount a small file system: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def start_bookie(zookeeper: str, small_disk: Path, unique_name: str) -> Iterator:
    processes: list[subprocess.Popen] = []

    def start(*more: str) -> str:
        uri = f"zk+hierarchical://{zookeeper}/{unique_name}"
        command = [sys.executable, "-m", "ledger.bookie", "run", "--metadata-uri", uri, "--data-dir", str(small_disk)]
        command += ["--port", str(choose_port(taken=())), "--no-fsync", "--journal-file-mib", "10", "--json", *more]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        assert json.loads(processes[-1].stdout.readline())["fsync"] is False
        return uri

    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


async def _fill(client: LedgerClient) -> list[tuple[int, int]]:
    """Write ledger after ledger until the bookie refuses; return (ledger, last acknowledged entry) of each."""
    written: list[tuple[int, int]] = []
    for _ in range(10 * _SIZE_MIB * (1 << 20) // (_LEDGER_ENTRIES * len(_PAYLOAD))):
        handle: WriteHandle | None = None
        try:
            handle = await client.create(**_ONE)
            for _ in range(_LEDGER_ENTRIES):
                written = [pair for pair in written if pair[0] != handle.ledger_id]
                written.append((handle.ledger_id, await handle.append(_PAYLOAD)))
            await handle.close()
        except LedgerError:
            if handle is not None and handle.last_add_confirmed >= 0:
                await handle.close()
            return written
    raise AssertionError("a disk of this size cannot hold all this")


@pytest.mark.parametrize("free_mib_min", [24, 1])
def test_a_full_bookie_serves_fences_and_comes_back_when_ledgers_are_deleted(start_bookie, free_mib_min) -> None:
    uri = start_bookie("--free-mib-min", str(free_mib_min), "--collect-s", "1")

    async def scenario() -> None:
        async with asyncio.timeout(100), await LedgerClient.connect(uri) as client:
            unclosed = await client.create(**_ONE)
            await unclosed.append(b"kept")
            written = await _fill(client)
            assert len(written) > 1
            for ledger_id, last in written:
                reader = await client.open_no_recovery(ledger_id)
                assert {e.payload for e in await reader.read_unconfirmed(0, last)} == {_PAYLOAD}
            assert (await client.open(unclosed.ledger_id)).last_add_confirmed == 0
            for ledger_id, _ in written:
                await client.delete(ledger_id)
            while True:
                try:
                    handle = await client.create(**_ONE)
                    await handle.append(b"room again")
                except LedgerError:
                    await asyncio.sleep(0.2)
                else:
                    return

    asyncio.run(scenario())


def test_a_full_bookie_is_not_chosen_for_new_ledgers(start_bookie) -> None:
    uri = start_bookie("--free-mib-min", str(2 * _SIZE_MIB))

    async def scenario() -> None:
        async with asyncio.timeout(60), await LedgerClient.connect(uri) as client:
            with pytest.raises(NotEnoughBookiesError, match="0 are writable"):
                await client.create(**_ONE)

    asyncio.run(scenario())
