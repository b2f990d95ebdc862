"""The simulated disk and its executor: what survives a kill, a power loss, a failed sync."""

from __future__ import annotations

import asyncio
import errno
import random

import pytest

from ledger.storage.disk import read_file, write_atomically
from ledger.testing import SimDisk, SimHost, Simulation


def _disk(seed: int = 1) -> SimDisk:
    disk = SimDisk(random.Random(seed))
    disk.make_dirs("/d/e")
    return disk


def _write(disk: SimDisk, path: str, content: bytes, *, is_synced: bool) -> None:
    handle = disk.open(path, create=True)
    disk.pwritev(handle, [content], 0)
    if is_synced:
        disk.fdatasync(handle)
    disk.close(handle)


@pytest.mark.parametrize("seed", range(20))
def test_what_was_synced_survives_a_power_loss_and_nothing_else_must(seed: int) -> None:
    disk = _disk(seed)
    _write(disk, "/d/file", b"a" * 2000, is_synced=True)
    disk.fsync_dir("/d")
    handle = disk.open("/d/file")
    disk.pwritev(handle, [b"b" * 1000, b"c" * 1000], 2000)
    disk.lose_power()
    content = bytes(read_file(disk, "/d/file"))
    assert content[:2000] == b"a" * 2000
    assert all(byte in b"bc\0" for byte in content[2000:])
    with pytest.raises(OSError, match="EBADF"):
        disk.pread(handle, 1, 0)


def test_an_unsynced_write_is_lost_kept_torn_or_holed_at_a_power_loss() -> None:
    fates = set()
    for seed in range(200):
        disk = _disk(seed)
        _write(disk, "/d/file", b"", is_synced=True)
        disk.fsync_dir("/d")
        _write(disk, "/d/file", b"x" * 3000, is_synced=False)
        disk.lose_power()
        content = bytes(read_file(disk, "/d/file"))
        if not content:
            fates.add("lost")
        elif content == b"x" * 3000:
            fates.add("kept")
        else:
            fates.add("holed" if b"\0" in content else "torn")
    assert fates == {"lost", "kept", "torn", "holed"}


def test_a_name_is_durable_once_its_folder_was_synced() -> None:
    outcomes = set()
    for seed in range(50):
        disk = _disk(seed)
        _write(disk, "/d/old", b"content", is_synced=True)
        disk.fsync_dir("/d")
        disk.rename("/d/old", "/d/new")
        disk.lose_power()
        outcomes.add(tuple(disk.list_dir("/d")))
        disk.rename(f"/d/{disk.list_dir('/d')[1]}", "/d/final")
        disk.fsync_dir("/d")
        disk.lose_power()
        assert disk.files() == {"/d/final": b"content"}
    assert outcomes == {("e", "old"), ("e", "new")}


def test_a_killed_process_leaves_the_page_cache() -> None:
    disk = _disk()
    _write(disk, "/d/file", b"content", is_synced=False)
    disk.close_handles()
    assert disk.files() == {"/d/file": b"content"}


def test_a_second_sync_after_a_failed_one_keeps_nothing() -> None:
    disk = _disk()
    _write(disk, "/d/file", b"", is_synced=True)
    disk.fsync_dir("/d")
    handle = disk.open("/d/file")
    disk.pwritev(handle, [b"content"], 0)
    disk.sync_error_rate = 1.0
    with pytest.raises(OSError, match="EIO") as caught:
        disk.fdatasync(handle)
    assert caught.value.errno == errno.EIO
    disk.make_healthy()
    disk.fdatasync(handle)
    assert disk.pread(handle, 99, 0) == b"content"
    disk.lose_power()
    assert disk.files() == {"/d/file": b""}


def test_a_full_disk_refuses_to_grow_but_not_to_write_over() -> None:
    disk = SimDisk(random.Random(1), capacity_bytes=1000)
    disk.make_dirs("/d")
    _write(disk, "/d/file", b"x" * 1000, is_synced=True)
    assert disk.free_bytes("/d") == 0
    _write(disk, "/d/file", b"y" * 1000, is_synced=True)
    with pytest.raises(OSError, match="ENOSPC"):
        _write(disk, "/d/other", b"z", is_synced=True)


def test_rot_flips_one_bit_that_no_restart_heals() -> None:
    disk = _disk()
    assert disk.rot() is None
    _write(disk, "/d/file", bytes(100), is_synced=True)
    disk.fsync_dir("/d")
    assert disk.rot("/d/file", byte_offset=7) == ("/d/file", 7)
    disk.lose_power()
    assert sum(byte.bit_count() for byte in disk.files()["/d/file"]) == 1


@pytest.mark.parametrize("seed", range(30))
def test_an_atomic_write_is_whole_or_absent_whenever_the_machine_dies(seed: int) -> None:
    simulation = Simulation(seed)
    host = simulation.host("a")
    host.disk.make_dirs("/d")

    async def program(host: SimHost) -> None:
        executor = host.executor()
        for number in range(100):
            content = b"%d" % number * 500
            await executor.submit(lambda content=content: write_atomically(host.disk, "/d", "file", content))
            done.append(number)

    done = [-1]

    async def main() -> None:
        task = host.start(program)
        await asyncio.sleep(simulation.random("test").uniform(0.001, 0.05))
        host.kill(power=seed % 2 == 0)
        assert not task.done()
        content = host.disk.files().get("/d/file")
        allowed = [b"%d" % number * 500 for number in (done[-1], done[-1] + 1)]
        assert content in (allowed if done[-1] >= 0 else [None, *allowed])

    simulation.run(main())


def test_a_crash_may_fall_between_any_two_operations_of_a_blocking_function() -> None:
    seen = set()
    for seed in range(100):
        simulation = Simulation(seed)
        host = simulation.host("a")
        host.disk.make_dirs("/d")

        async def program(host: SimHost) -> None:
            def work() -> None:
                for number in range(4):
                    _write(host.disk, f"/d/{number}", b"x", is_synced=False)

            await host.executor().submit(work)

        async def main(host: SimHost = host, program=program) -> None:
            host.start(program)
            await asyncio.sleep(0.0001)
            host.kill()
            seen.add(len(host.disk.files()))

        simulation.run(main())
    assert seen == {0, 1, 2, 3, 4}


def test_one_worker_runs_functions_in_their_order_and_a_slow_disk_takes_longer() -> None:
    simulation = Simulation(1)
    host = simulation.host("a")
    order: list[int] = []

    async def program(host: SimHost) -> float:
        executor = host.executor()
        start_s = simulation.loop.time()
        futures = [executor.submit(lambda number=number: order.append(number)) for number in range(20)]
        for future in futures:
            await future
        return simulation.loop.time() - start_s

    async def main() -> tuple[float, float]:
        healthy_s = await host.start(program)
        host.disk.slowness = 100.0
        return healthy_s, await host.start(program)

    healthy_s, slow_s = simulation.run(main())
    assert order == [*range(20), *range(20)]
    assert slow_s > 10 * healthy_s


def test_an_error_of_a_blocking_function_reaches_its_waiter() -> None:
    simulation = Simulation(1)

    async def program(host: SimHost) -> None:
        with pytest.raises(OSError, match="ENOENT"):
            await host.executor().submit(lambda: host.disk.open("/none"))

    async def main() -> None:
        await simulation.host("a").start(program)

    simulation.run(main())


def test_wall_clocks_of_hosts_differ_by_their_offsets() -> None:
    simulation = Simulation(1)
    one, two = simulation.host("one"), simulation.host("two")
    two.clock_offset_ms = 30_000

    async def main() -> None:
        await asyncio.sleep(1.5)
        assert two.clock_ms() - one.clock_ms() == 30_000

    before = one.clock_ms()
    simulation.run(main())
    assert one.clock_ms() - before == 1_500
