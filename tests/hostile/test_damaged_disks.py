"""One bookie's disk is damaged while it is down, the other copy is away for a moment: nothing acknowledged is lost.

Two of three bookies hold a ledger of 2/2/2 whose writer is gone. Both are killed; the files of one are damaged; it
alone comes back, and the ledger is recovered from it: refused, since it knows that it lost something. When the other
one is back the ledger ends where it must.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ledger import LedgerClient
from ledger.dev import DevCluster
from ledger.errors import LedgerError
from ledger.storage.landmarks import FILE_NAME

_COUNT = 300
_COPIED_AT = 100
_SETTLE_S = 2.5
"""The journal has been still, and the age of the disks has risen."""


def _newest(folder: Path) -> Path:
    return max((folder / "journal" / "current").glob("*.j"))


def _used_bytes(path: Path) -> int:
    return len(path.read_bytes().rstrip(b"\0"))


def _write_zeros(path: Path, start: int, end: int) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(bytes(end - start))


def _zero_the_middle(folder: Path) -> None:
    used = _used_bytes(_newest(folder))
    _write_zeros(_newest(folder), used // 2, used // 2 + 4096)


def _truncate(folder: Path) -> None:
    with _newest(folder).open("r+b") as file:
        file.truncate(_used_bytes(_newest(folder)) // 2)


def _empty(folder: Path) -> None:
    _newest(folder).write_bytes(b"")


def _delete(folder: Path) -> None:
    _newest(folder).unlink()


def _zero_all(folder: Path) -> None:
    _write_zeros(_newest(folder), 0, _newest(folder).stat().st_size)


def _zero_tail(folder: Path) -> None:
    used = _used_bytes(_newest(folder))
    _write_zeros(_newest(folder), used * 6 // 10, used)


def _lose_landmarks(folder: Path) -> None:
    _newest(folder).unlink()
    (folder / "ledgers" / "current" / FILE_NAME).unlink()


def _put_the_copy_back(folder: Path) -> None:
    shutil.rmtree(folder)
    (folder.parent / "copy").rename(folder)


_QUICK = (_truncate, _put_the_copy_back)
_DAMAGES = (_truncate, _put_the_copy_back, _zero_the_middle, _empty, _delete, _zero_all, _zero_tail, _lose_landmarks)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    with DevCluster(tmp_path_factory.mktemp("damaged"), bookie_count=3) as started:
        yield started


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(damage, id=damage.__name__.strip("_"), marks=[] if damage in _QUICK else [pytest.mark.slow])
        for damage in _DAMAGES
    ],
)
def test_a_damaged_bookie_never_ends_a_ledger_below_what_was_acknowledged(
    cluster: DevCluster, damage: Callable[[Path], None]
) -> None:
    async def main() -> None:
        async with await LedgerClient.connect(cluster.metadata_uri) as client:
            writer = await client.create(ensemble_size=2, write_quorum=2, ack_quorum=2)
            damaged, away = [cluster.bookies.index(bookie) for bookie in writer.metadata.segments[-1].bookies]
            folder = cluster.data_dir / cluster.state.bookies[damaged].name
            for number in range(_COUNT):
                if number == _COPIED_AT:
                    shutil.rmtree(folder.parent / "copy", ignore_errors=True)
                    shutil.copytree(folder, folder.parent / "copy")
                await writer.append(_payload(number))
            await asyncio.sleep(_SETTLE_S)
        for number in (damaged, away):
            cluster.kill_bookie(number)
        damage(folder)
        await asyncio.to_thread(cluster.start_bookie, damaged)
        async with await LedgerClient.connect(cluster.metadata_uri) as client:
            with pytest.raises((LedgerError, TimeoutError)):
                async with asyncio.timeout(4):
                    await client.open(writer.ledger_id)
            await asyncio.to_thread(cluster.start_bookie, away)
            async with asyncio.timeout(60):
                reader = await _opened(client, writer.ledger_id)
                entries = await reader.read(0, reader.last_add_confirmed)
            assert [entry.payload for entry in entries] == [_payload(number) for number in range(_COUNT)]

    asyncio.run(main())


async def _opened(client: LedgerClient, ledger_id: int):
    while True:
        try:
            return await client.open(ledger_id)
        except LedgerError:
            await asyncio.sleep(0.2)


def _payload(number: int) -> bytes:
    return number.to_bytes(4, "big") * 64
