"""How much memory a process may use, and when that is nearly used up."""

from __future__ import annotations

import asyncio
import gc
import mmap
from pathlib import Path
from typing import Any

import pytest

from rsm_spark.runtime import memory
from rsm_spark.runtime.memory import MemoryGauge, memory_limit
from rsm_spark.runtime.memory_watch import MemoryWatch

_MIB = 1024 * 1024


def _files(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def test_the_tightest_cgroup_of_version_two_counts_with_its_ancestors(tmp_path: Path) -> None:
    _files(tmp_path / "a", memory__max="1000000")
    _files(tmp_path / "a" / "b", memory__max="max")
    _files(tmp_path / "a" / "b" / "c", memory__max="2000000")
    (tmp_path / "proc").write_text("0::/a/b/c\n")
    found = memory._cgroup(tmp_path, tmp_path / "proc")
    assert found is not None
    assert (found.limit, found.folder) == (1_000_000, tmp_path / "a")
    _files(found.folder, memory__stat="anon 700000\nfile 900000\n")
    assert found.used() == 700_000


def test_a_cgroup_of_version_one_and_a_container_that_sees_the_hosts_path(tmp_path: Path) -> None:
    _files(tmp_path / "memory", memory__limit_in_bytes="5000000", memory__stat="total_rss 4000000\nrss 1\n")
    (tmp_path / "proc").write_text("4:cpu:/x\n3:memory:/docker/of/the/host\n0::/\n")
    found = memory._cgroup(tmp_path, tmp_path / "proc")
    assert found is not None
    assert (found.limit, found.used()) == (5_000_000, 4_000_000)
    (tmp_path / "proc").write_text("4:cpu:/x\n")
    assert memory._cgroup(tmp_path, tmp_path / "proc") is None
    assert memory._cgroup(tmp_path, tmp_path / "nothing") is None


def test_what_an_operator_says_goes_before_what_is_found() -> None:
    assert memory_limit(512) == 512 * _MIB
    assert 0 < memory_limit() <= memory._machine()


def test_it_is_full_from_the_mark_on_until_it_has_eased(monkeypatch: pytest.MonkeyPatch) -> None:
    now, resident = 0.0, 0
    monkeypatch.setattr(memory, "_own", lambda: (0, resident))
    gauge = MemoryGauge(100, clock_s=lambda: now)
    gauge._cgroup = None
    for resident_mib, is_full in ((69, False), (70, True), (66, True), (64, False), (69, False), (99, True)):
        resident = resident_mib * _MIB
        now += 1
        assert gauge.look().used == resident
        assert gauge.is_full == is_full, resident_mib
    resident = 0
    assert gauge.look().used == 99 * _MIB, "it is not looked at more often than four times a second"


def test_pages_of_a_mapped_file_are_not_what_a_process_uses(tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    path.write_bytes(bytes(256 * _MIB))
    _, before = memory._own()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert not any(mapped[place] for place in range(0, len(mapped), mmap.PAGESIZE)), "all of it is resident now"
        assert memory._own()[1] - before < 80 * _MIB
    gc.collect()  # What is let go while it is measured would hide what is taken.
    _, before = memory._own()
    # Pages that nobody had before, as an allocator's may have been had; shared ones would count as a file's.
    with mmap.mmap(-1, 64 * _MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as held:
        held.write(b"x" * len(held))
        assert memory._own()[1] - before > 32 * _MIB


def test_all_processes_of_a_cgroup_together_count_when_one_of_them_is_about_to_be_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(memory, "_own", lambda: (0, 10))
    gauge = MemoryGauge(100, clock_s=iter(range(9)).__next__)
    gauge._cgroup = memory._Cgroup(_files(tmp_path, memory__stat="anon 890"), 1_000)
    gauge.look()
    assert not gauge.is_full
    _files(tmp_path, memory__stat="anon 910")
    gauge.look()
    assert gauge.is_full


def test_a_replica_says_so_and_gives_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    given_back: list[Any] = []

    async def run_blocking(work: Any) -> None:
        given_back.append(work)

    async def scenario() -> None:
        resident = 80 * _MIB
        monkeypatch.setattr(memory, "_own", lambda: (0, resident))
        alarms: dict[str, str] = {}
        watch = MemoryWatch(MemoryGauge(100, clock_s=iter(range(99)).__next__), alarms, run_blocking)
        watch.gauge._cgroup = None
        watch.look()
        watch.look()
        await asyncio.sleep(0)
        assert watch.is_full
        assert "80 of 100 MiB" in alarms["memory"]
        assert given_back == [memory.return_free_memory]
        resident = 10 * _MIB
        watch.look()
        assert not watch.is_full
        assert not alarms

    asyncio.run(scenario())
    memory.return_free_memory()
