"""Whenever process or power goes, a disk and a lake hold whole snapshots, and nothing else that looks like one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rsm_spark.core.machine import Row
from rsm_spark.errors import SnapshotError
from rsm_spark.snapshots.incoming import INCOMING
from rsm_spark.snapshots.lake import LakeSnapshots
from rsm_spark.snapshots.local import LocalSnapshots
from rsm_spark.snapshots.manifest import SnapshotManifest
from rsm_spark.snapshots.pace import no_pace
from tests.sets import some_of
from tests.unit.rsm_spark.snapshots.crashing_disk import Crash, CrashingDisk
from tests.unit.rsm_spark.snapshots.test_local_snapshots import manifest_of, rows

Work = Callable[[LocalSnapshots, list[int]], Any]
"""What may crash: notes the revisions that it was told are kept."""


def store_in(folder: Path, disk: CrashingDisk | None = None) -> LocalSnapshots:
    return LocalSnapshots(folder, disk=disk, pace=lambda: no_pace)


def write(store: LocalSnapshots | LakeSnapshots, revision: int) -> SnapshotManifest:
    state = rows(salt=b"%d" % revision)
    return store.write(manifest_of(state, revision), state)


def write_one(store: LocalSnapshots, told: list[int]) -> None:
    """Write a snapshot more than are kept: the oldest goes."""
    told.append(write(store, 30).revision)


def copy_from(source: LocalSnapshots) -> Work:
    """Return the arrival of the newest snapshot of another store, in small pieces."""

    def _copy(store: LocalSnapshots, told: list[int]) -> None:
        manifest = source.manifests()[0]
        incoming = store.receive(manifest)
        for file in manifest.files:
            while (arrived := incoming.arrived(file)) < file.bytes:
                lent = source.lend(manifest, file.name)
                assert lent is not None
                with lent[0] as opened:
                    opened.seek(arrived)
                    incoming.append(file, opened.read(700))
        incoming.seal()
        store.check_arrived(incoming)
        told.append(store.install(incoming).revision)

    return _copy


def judge(folder: Path, told: list[int], again: Work) -> None:
    """Check a folder that a crash left: whole snapshots, old or new ones; the same work then succeeds."""
    found = store_in(folder)
    revisions = [one.revision for one in found.manifests()]
    assert found.damaged() == []
    assert set(told) <= set(revisions) <= {8, 9, 10, 30}
    for manifest in found.manifests():
        assert sorted(found.read(manifest)) == sorted(rows(salt=b"%d" % manifest.revision))
    again(found, [])
    assert [one.revision for one in store_in(folder).manifests()][:3] == [30, 10, 9]
    assert not [path for path in folder.iterdir() if path.name.startswith(INCOMING)]


@pytest.mark.parametrize("loses_power", [False, True])
@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("kind", ["write", "copy"])
def test_a_crash_at_any_step_leaves_whole_snapshots_and_the_work_can_be_done_again(
    tmp_path: Path, kind: str, is_after: bool, loses_power: bool
) -> None:
    source = store_in(tmp_path / "source")
    write(source, 30)
    work: Work = write_one if kind == "write" else copy_from(source)
    original = tmp_path / "original"
    for revision in (8, 9, 10):
        write(store_in(original), revision)
    counting = CrashingDisk()
    shutil.copytree(original, tmp_path / "count")
    work(store_in(tmp_path / "count", counting), [])
    assert counting.step_count > 15
    for crash_at in some_of(range(1, counting.step_count + 1), 6):
        folder = tmp_path / f"crash-{crash_at}"
        shutil.copytree(original, folder)
        disk = CrashingDisk(crash_at, is_after=is_after)
        told = [9, 10]
        with pytest.raises(Crash):
            work(store_in(folder, disk), told)
        if loses_power:
            disk.lose_power()
        judge(folder, told, work)
        shutil.rmtree(folder)


# ---- the lake


def lake_in(folder: Path) -> LakeSnapshots:
    return LakeSnapshots(str(folder), retention_hours=0, pace=lambda: no_pace)


def judge_lake(folder: Path, known: list[int]) -> None:
    """Check a lake that a crash left: what was told of is there and whole; it can be written again, and is read."""
    lake = lake_in(folder)
    found = [one.revision for one in lake.manifests()]
    assert set(known) <= set(found)
    assert [sorted(lake.read(one)) == sorted(rows(salt=b"%d" % one.revision)) for one in lake.manifests()]
    write(lake_in(folder), 50)
    fresh = lake_in(folder)
    assert fresh.manifests()[0].revision == 50
    assert sorted(fresh.read(fresh.manifests()[0])) == sorted(rows(salt=b"50"))
    assert max(known) in {one.revision for one in fresh.manifests()}


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    folder = tmp_path / "lake"
    write(lake_in(folder), 10)
    write(lake_in(folder), 20)
    return folder


def test_a_lake_whose_writer_dies_while_it_hands_over_rows_has_the_snapshots_before(lake: Path) -> None:
    for count in range(6):

        def _dying(count: int = count) -> Iterator[Row]:
            yield from rows(salt=b"30")[:count]
            raise Crash

        with pytest.raises((Crash, SnapshotError)):
            lake_in(lake).write(manifest_of(rows(salt=b"30"), 30), _dying())
    judge_lake(lake, [20, 10])


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("number", range(5))
def test_a_lake_whose_writer_dies_at_any_fsync_has_the_snapshots_before(
    lake: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_after: bool
) -> None:
    real, count = os.fsync, 0

    def _fsync(descriptor: int) -> None:
        nonlocal count
        count += 1
        if count == number + 1:
            if is_after:
                real(descriptor)
            raise Crash
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", _fsync)
        with pytest.raises(Crash):
            write(lake_in(lake), 30)
    judge_lake(lake, [20, 10])


@pytest.mark.parametrize(
    "left", ["nothing", "no commit", "empty commit", "half a commit", "zeros", "half a file", "no file"]
)
def test_a_lake_after_a_power_failure_before_the_sync_has_the_snapshots_before(lake: Path, left: str) -> None:
    before = {path for path in lake.rglob("*") if path.is_file()}
    write(lake_in(lake), 30)
    made = {path for path in lake.rglob("*") if path.is_file()} - before
    (commit,) = [path for path in made if path.suffix == ".json"]
    (file,) = [path for path in made if path.suffix == ".parquet"]
    text, content = commit.read_bytes(), file.read_bytes()
    match left:
        case "nothing":
            commit.unlink()
            file.unlink()
        case "no commit":
            commit.unlink()
        case "empty commit":
            commit.write_bytes(b"")
        case "half a commit":
            commit.write_bytes(text[: len(text) // 2])
        case "zeros":
            commit.write_bytes(bytes(len(text)))
        case "half a file":
            file.write_bytes(content[: len(content) // 2])
        case "no file":
            file.unlink()
    assert [one.revision for one in lake_in(lake).manifests()] == [20, 10]
    judge_lake(lake, [20, 10])


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.unit.rsm_spark.snapshots.test_crash_points import lake_in, write
for revision in range(100, 100_000):
    write(lake_in(Path(sys.argv[2])), revision)
    print(revision, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", range(10))
def test_a_lake_whose_writer_is_killed_has_every_snapshot_that_it_told_of(tmp_path: Path, number: int) -> None:
    folder = tmp_path / "lake"
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(Path(__file__).parents[4]), str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    told = [int(process.stdout.readline()) for _ in range(3)]
    time.sleep(0.011 * number)
    process.send_signal(signal.SIGKILL)
    told += [int(line) for line in process.stdout.read().split()]
    process.wait()
    lake = lake_in(folder)
    found = [one.revision for one in lake.manifests()]
    assert set(told[-2:]) <= set(found)  # It may have been killed before it told of the third.
    for manifest in lake.manifests()[:3]:
        assert sorted(lake.read(manifest)) == sorted(rows(salt=b"%d" % manifest.revision))
    write(lake, 200_000)
    assert msgspec.structs.asdict(lake.manifests()[0])["revision"] == 200_000
