"""Bookies of an older release, replaced one by one under writers and readers, as docs/operations.md tells it."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ledger import LedgerClient, ReadHandle
from tests.integration.bookie_process import Bookie
from tests.integration.older_release import BEFORE_KEYS, older_release
from tests.integration.writer_process import payload_of
from tests.integration.written_ledgers import Writer, check_written

_ROOT = Path(__file__).parents[2]
_PAGE = (_ROOT / "docs/operations.md").read_text()
_UPGRADES = _PAGE.partition("### Bookies one by one\n")[2].partition("\n### ")[0]
_BACK = _PAGE.partition("### Bookies of a new release are bad\n")[2].partition("\n### ")[0]
_BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)
(_WAIT,) = _BLOCK.findall(_UPGRADES)
_LOOK_FOR_COPIES, _WAIT_FOR_OLDER = _BLOCK.findall(_BACK)
_DOCUMENTED_FOLDER = "/var/lib/rsm/bookie-0"
_QUORUMS = ((3, 3, 2), (2, 2, 2))
"""One that goes on without a bookie, as there is no spare, and one that a spare helps."""
_ACKED_BETWEEN = 200
_COUNT = 50


class _UpgradedBookie(Bookie):
    """A bookie with the defaults of its release: the present one unless a folder with another is named."""

    release: Path = _ROOT

    def command(self, *more: str, port: int | None = None) -> list[str]:
        run = ["--metadata-uri", self.uri, "--port", str(port or self.port), "--data-dir", str(self.folder), "--json"]
        return ["env", "-C", str(self.release), sys.executable, "-m", "ledger.bookie", "run", *run, *more]

    def end(self) -> None:
        """End the process as its unit does."""
        assert self.process is not None
        self.process.terminate()
        assert self.process.wait(65) == 0
        self.kill()

    def begin(self, release: Path) -> None:
        """Start a release on the disk, and wait by the commands that are documented for it."""
        self.release = release
        said = self.start()
        assert not said.get("limbo"), "it misses what it has acknowledged"
        self.wait(_WAIT if release == _ROOT else _WAIT_FOR_OLDER)

    def wait(self, commands: str) -> None:
        """Run commands of the page, for this bookie."""
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands.replace(_DOCUMENTED_FOLDER, str(self.folder))],
            env=self.environment(), cwd=self.folder, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stdout + ended.stderr

    def environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "RSM_METADATA_URI": self.uri}

    @property
    def has_landmarks(self) -> bool:
        """What the present release keeps on a disk, and the older one does not."""
        return (self.folder / "ledgers" / "current" / "landmarks").exists()


@pytest.fixture
def bookies(zookeeper: str, unique_root: str, tmp_path: Path) -> Iterator[list[_UpgradedBookie]]:
    older = older_release(BEFORE_KEYS, tmp_path / "older")
    found = [_UpgradedBookie(zookeeper, tmp_path / name, root=f"{unique_root}/ledgers") for name in "abc"]
    for one in found:
        one.release = older
    try:
        yield found
    finally:
        for one in found:
            one.kill()


class _Judge:
    """Reads what writers have had acknowledged, as soon as they have, again and again from where it was."""

    def __init__(self, client: LedgerClient, writers: list[Writer]) -> None:
        self._client = client
        self._writers = writers
        self._handles: dict[int, ReadHandle] = {}
        self._judged: dict[int, int] = {}

    @property
    def count(self) -> int:
        """Entries read and found right."""
        return sum(last + 1 for last in self._judged.values())

    async def run(self) -> None:
        while True:
            for writer in self._writers:
                for ledger_id, last in list(writer.acked.items()):
                    await self._judge(ledger_id, last)
            await asyncio.sleep(0.01)

    async def _judge(self, ledger_id: int, last: int) -> None:
        first = self._judged.get(ledger_id, -1) + 1
        if first > last:
            return
        if ledger_id not in self._handles:
            self._handles[ledger_id] = await self._client.open_no_recovery(ledger_id)
        entries = await self._handles[ledger_id].read_unconfirmed(first, last)
        assert [entry.payload for entry in entries] == [payload_of(ledger_id, one) for one in range(first, last + 1)]
        self._judged[ledger_id] = last


async def _replace(client: LedgerClient, bookie: _UpgradedBookie, release: Path) -> int:
    """End a bookie, and start a release on its disk; return a ledger that was written and closed without it."""
    writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    await asyncio.to_thread(bookie.end)
    await writer.append_many([payload_of(writer.ledger_id, number) for number in range(_COUNT)])
    await writer.close()
    await asyncio.to_thread(bookie.begin, release)
    return writer.ledger_id


async def _write_single_copies(client: LedgerClient, count: int) -> dict[str, int]:
    """Write ledgers of which one bookie has all, until each has one; return them by bookie, each whole."""
    written: dict[str, int] = {}
    while len(written) < count:
        writer = await client.create(ensemble_size=1, write_quorum=1, ack_quorum=1)
        await writer.append_many([payload_of(writer.ledger_id, number) for number in range(_COUNT)])
        await writer.close()
        metadata = await client.metadata(writer.ledger_id)
        written[metadata.segments[0].bookies[0]] = writer.ledger_id
    return written


@contextmanager
def _auto_recovery(bookie: _UpgradedBookie) -> Iterator[None]:
    """Run the process that the way back begins with: bookies of the older release look for no copies."""
    command = shlex.split(_LOOK_FOR_COPIES)
    process = subprocess.Popen([*command, "--json"], env=bookie.environment(), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline(), f"{command} ended"
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_bookies_are_upgraded_one_by_one_under_load_and_nothing_is_lost(bookies: list[_UpgradedBookie]) -> None:
    for bookie in bookies:
        bookie.start()
    assert not any(bookie.has_landmarks for bookie in bookies)
    _replace_under_load(bookies, [(bookie, _ROOT) for bookie in bookies])
    assert all(bookie.has_landmarks for bookie in bookies)


def test_bookies_go_back_one_by_one_under_load_and_forward_again(bookies: list[_UpgradedBookie]) -> None:
    older = bookies[0].release
    for bookie in bookies:
        bookie.release = _ROOT
        bookie.start()
    assert all(bookie.has_landmarks for bookie in bookies)
    there_and_back = [*((bookie, older) for bookie in bookies), *((bookie, _ROOT) for bookie in bookies)]
    with _auto_recovery(bookies[0]):
        _replace_under_load(bookies, there_and_back)


def _replace_under_load(bookies: list[_UpgradedBookie], steps: list[tuple[_UpgradedBookie, Path]]) -> None:
    """Give bookies other releases while writers write and a reader judges: nothing that was acknowledged is lost."""
    uri = bookies[0].uri

    async def main() -> None:
        async with await LedgerClient.connect(uri) as client:
            closed = list((await _write_single_copies(client, len(bookies))).values())
            writers = [Writer(uri, *quorum) for quorum in _QUORUMS]
            judge = _Judge(client, writers)
            judging = asyncio.create_task(judge.run())

            async def go_on() -> None:
                for writer in writers:
                    await asyncio.to_thread(writer.wait_for_more, _ACKED_BETWEEN)
                wanted = sum(writer.acked_count for writer in writers)
                while judge.count < wanted:
                    assert not judging.done(), judging.exception()
                    await asyncio.sleep(0.02)

            try:
                for bookie, release in steps:
                    await go_on()
                    closed.append(await _replace(client, bookie, release))
                await go_on()
            finally:
                judging.cancel()
                await asyncio.gather(judging, return_exceptions=True)
                for writer in writers:
                    writer.kill()
            assert [writer.failures for writer in writers] == [[], []]
        async with await LedgerClient.connect(uri) as late:
            for writer in writers:
                assert await check_written(late, writer.acked) >= writer.acked_count
            assert await check_written(late, dict.fromkeys(closed, _COUNT - 1)) == _COUNT * len(closed)
            await asyncio.to_thread(bookies[0].wait, _WAIT)

    asyncio.run(asyncio.wait_for(main(), 500))


def test_an_older_release_refuses_a_bookie_with_a_name_and_the_newer_one_goes_on(
    bookies: list[_UpgradedBookie],
) -> None:
    bookie, older = bookies[0], bookies[0].release
    bookie.release = _ROOT
    assert bookie.start("--bookie-id", "shelf-1")["bookie_id"] == "shelf-1"
    bookie.end()
    bookie.release = older
    assert "the disk belongs to shelf-1" in bookie.refused()
    bookie.release = _ROOT
    assert not bookie.start("--bookie-id", "shelf-1").get("limbo")
