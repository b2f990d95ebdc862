"""A bookie's disks, id and cluster belong together: several directories, Java's text, each mismatch refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from ledger.bookie.disk_age import DiskAge
from ledger.bookie.identity import claim_disks
from ledger.errors import (
    BookieUnavailableError,
    CookieMismatchError,
    CorruptMetadataError,
    MetadataUnavailableError,
)
from ledger.storage.disk import RealDisk
from ledger.storage.limbo import LEDGER_ID_MAX, load_limbo
from ledger.testing import Simulation
from ledger.wire import paths
from ledger.wire.metadata_format import Cookie, encode_bookie_service_info
from ledger.zookeeper.ledgers import LedgerStore

_ROOT = "/ledgers"
_ID = "b0:3181"


def _with_store(work: Callable[[LedgerStore], Awaitable[None]]) -> None:
    simulation = Simulation(1)

    async def connect_and_work() -> None:
        store = await simulation.metadata.connect(session_timeout_ms=4_000)
        ledgers = LedgerStore(store, _ROOT)
        await ledgers.ensure_layout("instance-1")
        await work(ledgers)

    async def main() -> None:
        await simulation.host("client").spawn(connect_and_work())

    simulation.run(main(), limit_s=60)


class _Bookie:
    def __init__(self, folder: Path) -> None:
        self.folders = [str(folder / name / "current") for name in ("j", "a", "b")]
        self.cookie = Cookie(_ID, str(folder / "j"), (str(folder / "a"), str(folder / "b")), "instance-1")

    async def claim(self, ledgers: LedgerStore, **changes: object) -> bool:
        cookie = msgspec.structs.replace(self.cookie, **changes)
        age = DiskAge(ledgers.store, _ROOT, _ID, "process")
        return await claim_disks(RealDisk(), ledgers, cookie, self.folders, age, limbo_folder=self.folders[1])

    def take_entries(self) -> None:
        Path(self.folders[1], "0000000100000000.seg").write_bytes(b"entries")


async def _unanswered(*_arguments: object, **_options: object) -> str:
    raise MetadataUnavailableError("no reply")


def test_every_directory_gets_the_cookie_in_the_text_that_java_writes(tmp_path: Path) -> None:
    async def work(ledgers: LedgerStore) -> None:
        bookie = _Bookie(tmp_path)
        assert await bookie.claim(ledgers)
        assert not await bookie.claim(ledgers)
        node = (await ledgers.store.get(f"{_ROOT}/cookies/{_ID}")).value
        assert node.splitlines()[:2] == [b"5", b'bookieHost: "b0:3181"']
        assert f'ledgerDirs: "2\\t{tmp_path}/a\\t{tmp_path}/b"'.encode() in node.splitlines()
        assert [Path(folder, "VERSION").read_bytes() for folder in bookie.folders] == [node] * 3

    _with_store(work)


@pytest.mark.parametrize(
    "changes", [{"instance_id": "instance-2"}, {"ledger_dirs": ("/elsewhere",)}, {"journal_dirs": "/elsewhere"}]
)
def test_a_bookie_of_another_cluster_or_other_directories_is_refused(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    async def work(ledgers: LedgerStore) -> None:
        bookie = _Bookie(tmp_path)
        await bookie.claim(ledgers)
        with pytest.raises(CookieMismatchError, match="instance-1") as raised:
            await bookie.claim(ledgers, **changes)
        assert str(next(iter(changes.values()))).strip("(),'") in str(raised.value)

    _with_store(work)


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_one_lost_directory_of_several_is_refused_by_name(tmp_path: Path, lost: int) -> None:
    async def work(ledgers: LedgerStore) -> None:
        bookie = _Bookie(tmp_path)
        await bookie.claim(ledgers)
        Path(bookie.folders[lost], "VERSION").unlink()
        with pytest.raises(CookieMismatchError, match=f"{bookie.folders[lost]} is empty"):
            await bookie.claim(ledgers)

    _with_store(work)


def test_disks_that_come_back_after_their_cookie_was_deleted_are_used_in_limbo(tmp_path: Path) -> None:
    async def work(ledgers: LedgerStore) -> None:
        bookie = _Bookie(tmp_path)
        await bookie.claim(ledgers)
        bookie.take_entries()
        await ledgers.store.delete(paths.cookie_path(_ROOT, _ID))
        create, ledgers.store.create = ledgers.store.create, _unanswered
        with pytest.raises(MetadataUnavailableError):
            await bookie.claim(ledgers)
        ledgers.store.create = create
        assert not await bookie.claim(ledgers)
        limbo = load_limbo(RealDisk(), bookie.folders[1])
        assert limbo.ledger_id_max == LEDGER_ID_MAX
        (reason,) = limbo.reasons
        assert "was deleted, and its disks are back" in reason
        assert await ledgers.store.exists(paths.cookie_path(_ROOT, _ID)) is not None

    _with_store(work)


def test_disks_with_entries_are_refused_by_metadata_that_never_knew_them_or_if_some_are_missing(tmp_path: Path) -> None:
    async def work(ledgers: LedgerStore) -> None:
        bookie = _Bookie(tmp_path)
        await bookie.claim(ledgers)
        bookie.take_entries()
        await ledgers.store.delete(paths.cookie_path(_ROOT, _ID))
        Path(bookie.folders[2], "VERSION").rename(tmp_path / "kept")
        with pytest.raises(CookieMismatchError, match="not every directory of it"):
            await bookie.claim(ledgers)
        (tmp_path / "kept").rename(Path(bookie.folders[2], "VERSION"))
        await ledgers.store.delete(paths.former_bookie_path(_ROOT, _ID))
        with pytest.raises(CookieMismatchError, match="was the metadata store wiped"):
            await bookie.claim(ledgers)
        assert await ledgers.store.exists(paths.cookie_path(_ROOT, _ID)) is None

    _with_store(work)


def test_a_damaged_cookie_stops_the_start_and_is_left_as_it_is(tmp_path: Path) -> None:
    async def work(ledgers: LedgerStore) -> None:
        bookie = _Bookie(tmp_path)
        await bookie.claim(ledgers)
        path = f"{_ROOT}/cookies/{_ID}"
        await ledgers.store.set(path, b"rubbish", 0)
        with pytest.raises(CorruptMetadataError, match="a cookie begins with b'rubbish'"):
            await bookie.claim(ledgers)
        assert (await ledgers.store.get(path)).value == b"rubbish"

    _with_store(work)


def test_a_damaged_cookie_on_a_disk_names_its_file_and_what_to_do(tmp_path: Path) -> None:
    async def work(ledgers: LedgerStore) -> None:
        bookie = _Bookie(tmp_path)
        await bookie.claim(ledgers)
        path = Path(bookie.folders[2], "VERSION")
        path.write_bytes(b"rubbish")
        with pytest.raises(CorruptMetadataError, match=f"{path}: .*Copy the file from another directory"):
            await bookie.claim(ledgers)
        path.write_bytes(Path(bookie.folders[1], "VERSION").read_bytes())
        await bookie.claim(ledgers)

    _with_store(work)


def test_a_bookie_is_found_where_it_registered_else_where_its_id_says() -> None:
    async def work(ledgers: LedgerStore) -> None:
        for folder, name, value in (
            ("available", "named", encode_bookie_service_info("h1", 1)),
            ("available/readonly", "resting", encode_bookie_service_info("h2", 2)),
            ("available", "old:3", b""),
            ("available", "bad", b"\xff"),
        ):
            await ledgers.store.create(f"{_ROOT}/{folder}/{name}", value)
        found = [await ledgers.bookie_address(name) for name in ("named", "resting", "old:3", "gone:4")]
        assert found == [("h1", 1), ("h2", 2), ("old", 3), ("gone", 4)]
        with pytest.raises(BookieUnavailableError, match="gone is not registered"):
            await ledgers.bookie_address("gone")
        with pytest.raises(CorruptMetadataError, match="registration"):
            await ledgers.bookie_address("bad")

    _with_store(work)
