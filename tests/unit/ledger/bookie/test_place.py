"""One process at a time has an id and an address, whichever way a bookie came to them."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ledger.bookie.folders import lock_mark, locked
from ledger.bookie.place import check_address, check_own_id, take_own_id, wait_for_address
from ledger.bookie.settings import BookieSettings
from ledger.errors import BookieUnavailableError, CookieMismatchError, UsageError
from ledger.testing import Simulation
from ledger.wire import paths
from ledger.wire.metadata_format import (
    Cookie,
    decode_bookie_holder,
    decode_bookie_service_info,
    encode_bookie_service_info,
)
from ledger.zookeeper.ledgers import LedgerStore
from ledger.zookeeper.registration import BookieRegistration, create_cookie

_ROOT = "/ledgers"
_NAME = "shelf-1"
_PLACE = ("h1", 3181)


def _with_stores(work: Callable[[LedgerStore, LedgerStore], Awaitable[None]]) -> None:
    """Run `work` with the sessions of two processes."""
    simulation = Simulation(1)

    async def connect_and_work() -> None:
        stores = [LedgerStore(await simulation.metadata.connect(session_timeout_ms=4_000), _ROOT) for _ in range(2)]
        await stores[0].ensure_layout("instance-1")
        await work(stores[0], stores[1])

    async def main() -> None:
        await simulation.host("client").spawn(connect_and_work())

    simulation.run(main(), limit_s=200)


async def _register(ledgers: LedgerStore, name: str, place: tuple[str, int], holder: str) -> BookieRegistration:
    registration = BookieRegistration(ledgers.store, _ROOT, name, host=place[0], port=place[1], holder=holder)
    await registration.register()
    return registration


async def _is_registered(ledgers: LedgerStore, name: str) -> bool:
    await ledgers.store.sync(_ROOT)
    return name in await ledgers.writable_bookies()


@pytest.mark.parametrize("name", ["shelf-1", "a", "10.0.0.1:3181", "Bookie_0.rack.b", "x" * 200])
def test_names_that_bookkeeper_takes_are_taken(name: str) -> None:
    check_own_id(name)


@pytest.mark.parametrize("name", ["", "a/b", "a b", "-a", "ReadOnly", "é", "a\n", "x" * 201, "a\x00", "a,b", "../a"])
def test_other_names_are_refused_in_a_line(name: str) -> None:
    with pytest.raises(UsageError, match="--bookie-id") as raised:
        check_own_id(name)
    assert "\n" not in str(raised.value)


def test_the_id_is_the_own_one_else_the_address() -> None:
    assert BookieSettings("/d", 3181, advertise="h1").bookie_id == "h1:3181"
    assert BookieSettings("/d", 3181, bind="10.0.0.1", own_id=_NAME).bookie_id == _NAME


def test_a_registration_says_address_and_holder() -> None:
    value = encode_bookie_service_info("h1", 3181, "mark")
    assert (decode_bookie_service_info(value), decode_bookie_holder(value)) == (_PLACE, "mark")
    assert decode_bookie_holder(encode_bookie_service_info("h1", 3181)) == decode_bookie_holder(b"") == ""


def test_a_process_that_serves_under_the_name_keeps_it() -> None:
    async def work(first: LedgerStore, second: LedgerStore) -> None:
        await _register(first, _NAME, _PLACE, "mark of the disks")
        with pytest.raises(CookieMismatchError, match="a process at h1:3181 .* it serves"):
            await take_own_id(second, _NAME, "mark of a copy", wait_s=5.0)
        assert await _is_registered(second, _NAME)

    _with_stores(work)


def test_so_does_one_that_serves_reads_alone() -> None:
    async def work(first: LedgerStore, second: LedgerStore) -> None:
        await (await _register(first, _NAME, _PLACE, "mark")).set_read_only(True)
        with pytest.raises(CookieMismatchError, match="it serves"):
            await take_own_id(second, _NAME, "", wait_s=5.0)

    _with_stores(work)


def test_what_a_killed_process_of_the_same_directories_left_is_removed_at_once() -> None:
    async def work(first: LedgerStore, second: LedgerStore) -> None:
        await first.store.create(
            paths.available_path(_ROOT, _NAME), encode_bookie_service_info(*_PLACE, "mark"), ephemeral=True
        )
        before = asyncio.get_running_loop().time()
        await take_own_id(second, _NAME, "mark")
        assert asyncio.get_running_loop().time() - before < 1.0
        assert not await _is_registered(second, _NAME)

    _with_stores(work)


def test_what_one_of_another_machine_left_is_waited_for() -> None:
    async def work(first: LedgerStore, second: LedgerStore) -> None:
        loop = asyncio.get_running_loop()
        registration = await _register(first, _NAME, _PLACE, "mark there")
        leaving = loop.create_task(_leave_later(registration))
        await take_own_id(second, _NAME, "mark here")
        assert leaving.done()
        assert not await _is_registered(second, _NAME)

    _with_stores(work)


async def _leave_later(registration: BookieRegistration) -> None:
    await asyncio.sleep(3.0)
    await registration.unregister()


def test_an_address_where_another_id_is_registered_is_waited_for_then_refused() -> None:
    async def work(first: LedgerStore, second: LedgerStore) -> None:
        registration = await _register(first, "shelf-2", _PLACE, "mark")
        await wait_for_address(second, _NAME, ("h1", 3182))
        await wait_for_address(second, "shelf-2", _PLACE)
        with pytest.raises(CookieMismatchError, match="shelf-2 is registered at the same address h1:3181"):
            await wait_for_address(second, _NAME, _PLACE, wait_s=3.0)
        leaving = asyncio.get_running_loop().create_task(_leave_later(registration))
        await wait_for_address(second, _NAME, _PLACE)
        assert leaving.done()

    _with_stores(work)


def test_an_address_that_is_the_id_of_another_bookie_is_refused() -> None:
    async def work(first: LedgerStore, _second: LedgerStore) -> None:
        await create_cookie(first.store, _ROOT, "h1:3181", Cookie("h1:3181", "/j", ("/l",), "instance-1"))
        await check_address(first, "h1:3181", _PLACE)
        await check_address(first, "h1:3181", ("h2", 3181))
        await check_address(first, _NAME, ("h2", 3181))
        with pytest.raises(CookieMismatchError, match="h1:3181 is the id of another bookie"):
            await check_address(first, _NAME, _PLACE)

    _with_stores(work)


def test_an_id_that_is_an_old_address_is_found_at_the_new_one() -> None:
    async def work(first: LedgerStore, second: LedgerStore) -> None:
        registration = await _register(first, "h1:3181", ("h2", 4000), "mark")
        await second.store.sync(_ROOT)
        assert await second.bookie_address("h1:3181") == ("h2", 4000)
        await registration.unregister()
        await (await _register(first, _NAME, _PLACE, "mark")).unregister()
        await second.store.sync(_ROOT)
        with pytest.raises(BookieUnavailableError, match=_NAME):
            await second.bookie_address(_NAME)

    _with_stores(work)


def test_the_mark_of_a_directory_outlives_processes_and_is_in_no_copy(tmp_path: Path) -> None:
    folder = tmp_path / "current"
    folder.mkdir()
    with locked([str(folder)]):
        mark = lock_mark(str(folder))
    with locked([str(folder)]):
        assert lock_mark(str(folder)) == mark
    shutil.copytree(folder, tmp_path / "copy")
    with locked([str(tmp_path / "copy")]):
        assert lock_mark(str(tmp_path / "copy")) != mark
