"""The age of a bookie's disks: an older copy of a data folder is found, a crash at any point is none."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from ledger.bookie.disk_age import DiskAge, find_rolled_back
from ledger.bookie.identity import claim_disks
from ledger.errors import CookieMismatchError, MetadataError
from ledger.storage.landmarks import Age, Landmarks
from ledger.storage.limbo import load_limbo
from ledger.testing import SimDisk, Simulation
from ledger.testing.disk import SimPowerCut
from ledger.wire import paths
from ledger.wire.metadata_format import Cookie
from ledger.zookeeper.ledgers import LedgerStore

_ROOT, _ID, _FOLDER = "/ledgers", "b0:3181", "/b/current"
_NODE = paths.former_bookie_path(_ROOT, _ID)


def _with_store(work: Callable[[LedgerStore], Awaitable[None]]) -> None:
    simulation = Simulation(1)

    async def connect_and_work() -> None:
        store = await simulation.metadata.connect(session_timeout_ms=4_000)
        ledgers = LedgerStore(store, _ROOT)
        await ledgers.ensure_layout("instance-1")
        await work(ledgers)

    async def main() -> None:
        await simulation.host("client").spawn(connect_and_work())

    simulation.run(main(), limit_s=600)


async def _start(ledgers: LedgerStore, disk: SimDisk, process_id: str) -> DiskAge:
    age = DiskAge(ledgers.store, _ROOT, _ID, process_id)
    cookie = Cookie(_ID, "/b", ("/b",), "instance-1")
    await claim_disks(disk, ledgers, cookie, [_FOLDER], age, limbo_folder=_FOLDER)
    await age.begin(disk, _FOLDER)
    return age


def _copy(disk: SimDisk) -> SimDisk:
    copy = SimDisk(random.Random(2))
    copy.make_dirs(_FOLDER)
    for path, content in disk.files().items():
        copy.pwritev(copy.open(path, create=True), [content], 0)
    return copy


async def _registered(ledgers: LedgerStore) -> Age:
    return msgspec.json.decode((await ledgers.store.get(_NODE)).value, type=Age)


def test_starts_one_after_the_other_make_the_disks_older_and_nothing_else() -> None:
    async def work(ledgers: LedgerStore) -> None:
        disk = SimDisk(random.Random(1))
        for number in range(1, 4):
            await _start(ledgers, disk, f"p{number}")
            assert Landmarks(disk, _FOLDER).held.age == await _registered(ledgers) == Age(number, f"p{number}")
        assert not load_limbo(disk, _FOLDER).reasons

    _with_store(work)


def test_an_older_copy_of_the_folder_is_in_limbo_and_says_so_once() -> None:
    async def work(ledgers: LedgerStore) -> None:
        disk = SimDisk(random.Random(1))
        await _start(ledgers, disk, "p1")
        copy = _copy(disk)
        await _start(ledgers, disk, "p2")
        for name in ("p3", "p4"):
            await _start(ledgers, copy, name)
            (reason,) = load_limbo(copy, _FOLDER).reasons
            assert "the disks have the age 1, the metadata 2" in reason
        assert await _registered(ledgers) == Age(4, "p4")

    _with_store(work)


def test_a_copy_of_the_seconds_before_is_found_since_the_age_rises_while_the_bookie_serves() -> None:
    async def work(ledgers: LedgerStore) -> None:
        disk = SimDisk(random.Random(1))
        age = await _start(ledgers, disk, "p1")
        executor = _Here()
        batches = [0]
        landmarks = Landmarks(disk, _FOLDER)
        keeping = asyncio.get_running_loop().create_task(age.keep(landmarks, executor, lambda: batches[0], print))
        await asyncio.sleep(3)
        assert (await _registered(ledgers)).count == 1  # Nothing was written.
        batches[0] = 1
        copy = _copy(disk)
        await asyncio.sleep(3)
        assert await _registered(ledgers) == Age(2, "p1")
        for _ in range(24):  # Under load.
            batches[0] += 1
            await asyncio.sleep(0.5)
        assert 3 <= (await _registered(ledgers)).count <= 5
        keeping.cancel()
        await _start(ledgers, copy, "p2")
        assert load_limbo(copy, _FOLDER).reasons
        await _start(ledgers, disk, "p3")  # The true disks are the older ones now: whose entries are where?
        assert load_limbo(disk, _FOLDER).reasons

    _with_store(work)


def test_a_copy_that_serves_beside_the_disks_stops_one_of_the_two() -> None:
    async def work(ledgers: LedgerStore) -> None:
        disk = SimDisk(random.Random(1))
        first = await _start(ledgers, disk, "p1")
        await _start(ledgers, _copy(disk), "p2")
        with pytest.raises(CookieMismatchError, match="serves a copy of them"):
            await first.raise_age(Landmarks(disk, _FOLDER), _Here())

    _with_store(work)


def test_a_crash_anywhere_in_a_start_is_no_loss_and_hides_none() -> None:
    async def run(ledgers: LedgerStore, cut_after: int, *, is_older: bool) -> bool:
        disk = SimDisk(random.Random(1))
        await _start(ledgers, disk, f"{cut_after} a {is_older}")
        copy = _copy(disk)
        await _start(ledgers, disk, f"{cut_after} b {is_older}")
        used = copy if is_older else disk
        used.operations_left = cut_after
        try:
            await _start(ledgers, used, f"{cut_after} c {is_older}")
            is_cut = False
        except SimPowerCut:
            is_cut = True
        used.operations_left = None
        used.close_handles()
        await _start(ledgers, used, f"{cut_after} d {is_older}")
        assert bool(load_limbo(used, _FOLDER).reasons) is is_older, cut_after
        await ledgers.store.delete(paths.cookie_path(_ROOT, _ID))
        await ledgers.store.delete(_NODE)
        return is_cut

    async def work(ledgers: LedgerStore) -> None:
        for is_older in (False, True):
            cuts = 0
            while await run(ledgers, cuts, is_older=is_older):
                cuts += 1
            assert cuts > 5

    _with_store(work)


def test_metadata_that_answer_nothing_leave_the_start_to_be_tried_again() -> None:
    async def work(ledgers: LedgerStore) -> None:
        disk = SimDisk(random.Random(1))
        await _start(ledgers, disk, "p1")
        for number in range(2, 30):
            session = ledgers.store
            real_set = session.set

            async def lost(path: str, value: bytes, version: int, set_=real_set, number=number) -> int:
                if number % 2:
                    await set_(path, value, version)  # It arrived, the reply did not.
                raise MetadataError("no reply")

            session.set = lost
            with pytest.raises(MetadataError):
                await _start(ledgers, disk, f"p{number}")
            session.set = real_set
            await _start(ledgers, disk, f"p{number}" if number % 3 else f"p{number} again")
            assert not load_limbo(disk, _FOLDER).reasons, number

    _with_store(work)


def test_disks_from_before_there_were_ages_come_up_clean_and_lost_landmarks_do_not() -> None:
    async def work(ledgers: LedgerStore) -> None:
        disk = SimDisk(random.Random(1))
        cookie = Cookie(_ID, "/b", ("/b",), "instance-1")
        age = DiskAge(ledgers.store, _ROOT, _ID, "p0")
        await claim_disks(disk, ledgers, cookie, [_FOLDER], age, limbo_folder=_FOLDER)
        disk.remove(f"{_FOLDER}/landmarks")  # As the release before left it.
        await _start(ledgers, disk, "p1")
        assert not load_limbo(disk, _FOLDER).reasons
        disk.remove(f"{_FOLDER}/landmarks")
        await _start(ledgers, disk, "p2")
        (reason,) = load_limbo(disk, _FOLDER).reasons
        assert "the landmarks are gone" in reason

    _with_store(work)


def test_metadata_from_an_older_copy_are_told_of_and_lose_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def work(ledgers: LedgerStore) -> None:
        disk = SimDisk(random.Random(1))
        for number in range(5):
            await _start(ledgers, disk, f"p{number}")
        value, version = await ledgers.store.get(_NODE)
        await ledgers.store.set(_NODE, msgspec.json.encode(Age(2, "p1")), version)
        await _start(ledgers, disk, "p6")
        assert not load_limbo(disk, _FOLDER).reasons
        assert await _registered(ledgers) == Age(6, "p6")
        assert value

    _with_store(work)
    assert "were the metadata put back from an older copy" in caplog.text


@pytest.mark.parametrize(
    ("held", "registered", "is_rolled_back"),
    [
        (Age(), Age(), False),
        (Age(3, "a"), Age(3, "a"), False),
        (Age(4, "b"), Age(3, "a"), False),
        (Age(3, "a"), Age(4, "b"), True),
        (Age(3, "a"), Age(3, "b"), True),
    ],
)
def test_what_shows_an_older_copy(held: Age, registered: Age, is_rolled_back: bool) -> None:
    assert bool(find_rolled_back(held, registered)) is is_rolled_back


class _Here:
    """Does at once what a thread would do."""

    def submit(self, fn: Callable[[], object]) -> asyncio.Future:
        future = asyncio.get_running_loop().create_future()
        future.set_result(fn())
        return future

    def close(self) -> asyncio.Future:
        return self.submit(lambda: None)
