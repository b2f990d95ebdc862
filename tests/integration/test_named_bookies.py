"""Bookies with ids of their own, as processes: their addresses change under load, and nobody else gets their ids."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ledger import ClientSettings, LedgerClient
from ledger.dev.ports import choose_port
from ledger.exit_codes import ExitCode
from tests.integration.bookie_process import Bookie

_NAMES = ("shelf-1", "shelf-2", "shelf-3", "shelf-4")
"""One more than a ledger needs: a writer does without the one that moves until it has found it again."""
_SECRET = b"pw"


@pytest.fixture
def shelves(zookeeper: str, tmp_path, request: pytest.FixtureRequest) -> Iterator[list[Bookie]]:
    root = f"/{request.node.name.replace('[', '-').rstrip(']')}/ledgers"
    shelves = [Bookie(zookeeper, tmp_path / name, root=root, options=("--bookie-id", name)) for name in _NAMES]
    try:
        yield shelves
    finally:
        for shelf in shelves:
            shelf.kill()


def _move(shelf: Bookie, *, is_killed: bool) -> dict:
    """End a bookie and start it at another port; return what it says then."""
    assert shelf.process is not None
    if not is_killed:
        shelf.process.terminate()
        shelf.process.wait(60)
    shelf.kill()
    shelf.port = choose_port(taken=())
    return shelf.start()


@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_addresses_change_under_load_and_nothing_is_lost(shelves: list[Bookie], protocol) -> None:
    ids = {shelf.start()["bookie_id"] for shelf in shelves}
    assert ids == set(_NAMES)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        settings = ClientSettings(protocol=protocol)
        async with await LedgerClient.connect(shelves[0].uri, settings=settings) as client:
            writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2, password=_SECRET)
            is_over = False
            acked = -1

            async def write() -> None:
                nonlocal acked
                while not is_over:
                    acked = await writer.append(b"%d" % (acked + 1))

            async def go_on() -> None:
                wanted = acked + 100
                while acked < wanted:
                    assert not writing.done(), writing.exception()
                    await asyncio.sleep(0.02)

            writing = asyncio.create_task(write())
            for round_number in range(2):
                for number, shelf in enumerate(shelves):
                    await go_on()
                    said = await loop.run_in_executor(None, lambda: _move(shelf, is_killed=number == round_number))  # noqa: B023
                    assert (said["bookie_id"], said["address"]) == (_NAMES[number], f"127.0.0.1:{shelf.port}")
                    assert not said["limbo"]
                    await go_on()
            is_over = True
            await writing
            assert await writer.close() == acked
            metadata = await client.metadata(writer.ledger_id, sync=True)
            assert {one for segment in metadata.segments for one in segment.bookies} <= ids
            await _check(client, writer.ledger_id, acked)
        async with await LedgerClient.connect(shelves[0].uri, settings=settings) as late:  # knew no old address
            await _check(late, writer.ledger_id, acked)

    asyncio.run(asyncio.wait_for(main(), 240))


async def _check(client: LedgerClient, ledger_id: int, end: int) -> None:
    handle = await client.open(ledger_id, password=_SECRET)
    assert handle.last_add_confirmed == end
    entries = await handle.read(0, end)
    assert [bytes(entry.payload) for entry in entries] == [b"%d" % number for number in range(end + 1)]


def test_a_second_process_does_not_get_the_id_and_the_first_goes_on(shelves: list[Bookie], tmp_path) -> None:
    """One with directories of its own, and one that has a copy of the first one's under the same path."""
    shelf, second, *_ = shelves
    shelf.start()
    copy = tmp_path / "copy"
    shutil.copytree(shelf.folder, copy)
    mount = ["unshare", "-m", "sh", "-c", 'mount --bind "$0" "$1" && shift && exec "$@"', str(copy), str(shelf.folder)]
    second.options = shelf.options
    with ThreadPoolExecutor() as threads:
        waiting = [threads.submit(_last_words, second.command())]
        if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode == 0:
            waiting.append(threads.submit(_last_words, [*mount, *shelf.command(port=choose_port(taken=()))]))
    for line in (done.result() for done in waiting):
        assert f"a process at 127.0.0.1:{shelf.port} has been registered under this id" in line
        assert "another --bookie-id" in line

    async def write() -> None:
        async with await LedgerClient.connect(shelf.uri) as client:
            writer = await client.create(ensemble_size=1, write_quorum=1, ack_quorum=1)
            assert await writer.append(b"still here") == 0

    asyncio.run(asyncio.wait_for(write(), 60))
    assert shelf.process is not None
    assert shelf.process.poll() is None


def _last_words(command: list[str]) -> str:
    ended = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert ended.returncode in set(ExitCode), ended.stderr
    return ended.stderr.strip().splitlines()[-1]


def test_no_bookie_listens_where_clients_would_take_it_for_another(shelves: list[Bookie]) -> None:
    shelf, by_address, *_ = shelves
    by_address.options = ()
    by_address.port = shelf.port
    bookie_id = by_address.start()["bookie_id"]
    by_address.kill()
    assert f"{bookie_id} is the id of another bookie" in shelf.refused()

    line = by_address.refused("--bookie-id", "shelf-9")  # Disks keep the id that they have.
    assert f"--bookie-id {bookie_id}" in line
    by_address.port = choose_port(taken={shelf.port})
    said = by_address.start("--bookie-id", bookie_id)  # And take it to another address.
    assert (said["bookie_id"], said["address"]) == (bookie_id, f"127.0.0.1:{by_address.port}")
