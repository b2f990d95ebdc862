"""What a backup copies, what a restore takes, what retention removes; manifests and files on a disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.errors import UsageError
from rsm_spark.backup.catalog import (
    BackupList,
    choose_backup,
    find_backups,
    home_of,
    keep_backup,
    remove_expired,
)
from rsm_spark.backup.manifest import (
    BackupError,
    CorruptBackupError,
    RetentionError,
    decode_backup,
    encode_backup,
    origins_at,
    segment_path,
)
from rsm_spark.backup.place import BackupPlace
from rsm_spark.backup.plan import expired, is_believed, kept_snapshots, plan_backup, plan_restore, unused_files
from rsm_spark.backup.verifying import verify_backup
from rsm_spark.cli.backup_create import seconds_of
from rsm_spark.cli.copying import ms_of
from rsm_spark.core.chain import LogOrigin
from rsm_spark.snapshots.manifest import SnapshotManifest
from tests.unit.connectors.state.histories import Shop
from tests.unit.rsm_spark.backup.made_backup import CHECKED, LOG, MadeBackup, whole_backup

_EXAMPLE = SnapshotManifest(LOG, "ab" * 16, 1, 1, 1, "00" * 32, "00" * 16, 0, 1, 1, 1, Shop.description)


@pytest.fixture
def made(tmp_path: Path) -> MadeBackup:
    return whole_backup(tmp_path)


def test_a_backup_is_read_as_it_was_written_and_is_whole(made: MadeBackup) -> None:
    manifest = made.chosen()
    assert decode_backup(encode_backup(manifest), log=LOG, log_id=made.log_id, name=manifest.name) == manifest
    found, unnamed = verify_backup(made.place, manifest)
    assert unnamed == []
    assert (found.entries, found.first_revision, found.last_revision) == (40, 1, made.reference.state.revision)
    assert found.prefix_hash == made.reference.state.prefix_hash.hex()


def test_what_is_there_is_not_copied_again(made: MadeBackup) -> None:
    manifest = made.chosen()
    plan = plan_backup(made.chain(), manifest, manifest.files)
    assert (plan.segments, plan.snapshots) == (manifest.segments, manifest.snapshots)
    assert plan.position == made.entries[-1].position
    assert (plan.revision, plan.prefix_hash) == (manifest.last_revision, made.reference.state.prefix_hash.hex())


def test_behind_a_lost_file_everything_is_copied_again(made: MadeBackup) -> None:
    manifest = made.chosen()
    sizes = {**manifest.files, segment_path(manifest.segments[1]): 3}
    plan = plan_backup(made.chain(), manifest, sizes)
    assert plan.segments == manifest.segments[:1]
    assert plan.revision == manifest.segments[0].last_revision
    assert plan.snapshots == (), "it lies behind"
    assert plan_backup(made.chain(), manifest, {}).position is None


def test_where_the_log_was_trimmed_beyond_the_backup_a_new_one_begins(made: MadeBackup) -> None:
    chain = made.chain()
    trimmed = msgspec.structs.replace(
        chain, ledgers=(msgspec.structs.replace(chain.ledgers[-1], ledger_id=999, first_revision=500),)
    )
    plan = plan_backup(trimmed, made.chosen(), made.chosen().files)
    assert (plan.segments, plan.position, plan.revision, plan.prefix_hash) == ((), None, 499, "")


def test_a_restore_reads_as_far_as_the_end_that_is_wanted(made: MadeBackup) -> None:
    manifest = made.chosen()
    first, second, third = manifest.segments
    snapshot = manifest.snapshots[0].revision
    assert plan_restore(manifest, None, None).segments == (first, second, third)
    assert plan_restore(manifest, first.last_revision, None).segments == (first,)
    assert plan_restore(manifest, second.first_revision, None).segments == (first, second)
    assert plan_restore(manifest, snapshot, None).snapshots == manifest.snapshots
    assert plan_restore(manifest, snapshot - 1, None).snapshots == ()
    assert plan_restore(manifest, None, first.last_ms).segments == (first, second)
    assert plan_restore(manifest, None, first.last_ms - 1).segments == (first,)
    with pytest.raises(BackupError, match="it holds revisions 1 to"):
        plan_restore(manifest, third.last_revision + 1, None)


def test_a_snapshot_without_a_checkpoint_is_told(tmp_path: Path) -> None:
    made = MadeBackup(tmp_path)
    made.add_segment(0, 40)
    snapshot = made.add_snapshot(CHECKED + 2)
    assert verify_backup(made.place, made.keep())[1] == [snapshot.revision]


@pytest.mark.parametrize("is_for_lake", [False, True])
def test_in_a_log_with_a_key_only_what_a_sealed_checkpoint_names_is_used(is_for_lake: bool) -> None:
    def believed(has_key: bool, is_named: bool, is_named_in_log: bool) -> bool:
        return is_believed(has_key=has_key, is_named=is_named, is_named_in_log=is_named_in_log, is_for_lake=is_for_lake)

    assert believed(False, False, False)
    assert not believed(True, False, False)
    assert believed(True, True, True)
    assert believed(True, True, False) is not is_for_lake


def test_the_backups_of_a_renamed_log_are_found_and_removed_under_each_of_its_names(made: MadeBackup) -> None:
    place, first = made.place, made.chosen()
    assert home_of(place, "bills", made.log_id, []) == "bills"
    assert not find_backups(place, "bills").whole
    assert home_of(place, "bills", made.log_id, ["never", LOG]) == LOG
    assert home_of(place, "bills", made.log_id, []) == LOG, "without the former names too"
    assert home_of(place, "debts", made.log_id, ["bills", LOG]) == LOG
    assert home_of(place, LOG, made.log_id, ["bills", "debts"]) == LOG
    second = msgspec.structs.replace(first, made_ms=2_000)
    keep_backup(place, second)
    for name in (LOG, "bills", "debts"):
        assert find_backups(place, name, made.log_id).whole == [second, first]
        assert not find_backups(place, name, "00" * 16).whole
    assert find_backups(place).whole == [second, first]
    assert remove_expired(place, "debts", made.log_id, 1) == [first.name]
    assert choose_backup(place, "bills") == second


@pytest.mark.parametrize("name", [b"", b"..", b"a/b", b"x" * 5000])
def test_a_former_name_that_leads_out_of_the_place_is_refused(made: MadeBackup, name: bytes) -> None:
    made.place.put(f"bills/{made.log_id}/former", name)
    for ask in (lambda: find_backups(made.place, "bills"), lambda: home_of(made.place, "bills", made.log_id, [])):
        with pytest.raises(CorruptBackupError):
            ask()


def test_retention_removes_what_no_backup_that_stays_names(made: MadeBackup) -> None:
    first = made.chosen()
    second = msgspec.structs.replace(first, made_ms=2_000, segments=first.segments[:2])
    keep_backup(made.place, second)
    assert expired([first, second], 1) == [first]
    assert unused_files([first], [second]) == [segment_path(first.segments[2])]
    assert remove_expired(made.place, LOG, made.log_id, 1) == [first.name]
    assert find_backups(made.place).whole == [second]
    verify_backup(made.place, second)
    assert remove_expired(made.place, LOG, made.log_id, 1) == []


def test_retention_stops_at_a_damaged_backup_that_would_stay_and_says_so(made: MadeBackup) -> None:
    first = made.chosen()
    for made_ms in (2_000, 3_000, 4_000):
        keep_backup(made.place, msgspec.structs.replace(first, made_ms=made_ms))
    newest = msgspec.structs.replace(first, made_ms=4_000)
    path = made.root / "backups" / msgspec.structs.replace(first, made_ms=3_000).name
    path.write_bytes(b"{}")
    with pytest.raises(RetentionError, match="no older backup is removed while one is damaged"):
        remove_expired(made.place, LOG, made.log_id, 2)
    assert len(find_backups(made.place).whole) == 3
    # With the newest alone it would go too: nothing is lost by going on.
    assert set(remove_expired(made.place, LOG, made.log_id, 1)) == {
        path.name,
        first.name,
        newest.name.replace("4000", "2000"),
    }
    assert find_backups(made.place) == BackupList([newest])
    verify_backup(made.place, newest)


@given(st.lists(st.integers(1, 1_000), unique=True), st.integers(1, 5))
def test_the_newest_snapshots_stay_and_the_oldest(revisions: list[int], keep: int) -> None:

    made = [msgspec.structs.replace(_EXAMPLE, revision=revision) for revision in revisions]
    kept = [one.revision for one in kept_snapshots(made, keep)]
    ordered = sorted(revisions)
    assert kept == sorted({*ordered[:1], *ordered[-keep:]})


def test_the_origins_of_a_restored_log_end_where_it_was_cut(made: MadeBackup) -> None:
    def origin(name: str, revision: int) -> LogOrigin:
        return LogOrigin(name, name[:1] * 32, revision, "00" * 32, 1, "ops", "x")

    chain = msgspec.structs.replace(made.chain(), origins=(origin("a", 10), origin("b", 20)))
    manifest = made.manifest(chain=chain)

    def cut(revision: int) -> list[tuple[str, str, int]]:
        found = origins_at(manifest.chain.origins, origin("c", revision))
        return [(one.log, one.log_id[0], one.revision) for one in found]

    assert cut(30) == [("a", "a", 10), ("b", "b", 20), ("c", "c", 30)]
    assert cut(15) == [("a", "a", 10), ("b", "b", 15)]
    assert cut(10) == [("a", "a", 10)]


def test_a_place_tells_no_secret_of_its_address() -> None:
    assert BackupPlace("s3://bucket/folder?region=eu-west-1").shown == "s3://bucket/folder"


@pytest.mark.parametrize(
    "place", ["s3://key:hush@bucket/folder", "s3://bucket/folder?secret_key=hush", "hdfs://me:hush@host/folder"]
)
def test_a_place_whose_address_holds_a_secret_is_refused_without_repeating_it(place: str) -> None:
    with pytest.raises(UsageError, match="holds a secret") as refused:
        BackupPlace(place)
    assert "hush" not in str(refused.value)


def test_durations_and_times_are_read_and_what_is_none_is_refused() -> None:
    assert [seconds_of(text) for text in ("30s", "15m", "1h", "2d")] == [30, 900, 3_600, 172_800]
    assert ms_of("2026-11-23T14:00:00Z") == ms_of("2026-11-23T15:00:00+01:00") == ms_of("1795442400000")
    for text in ("1", "0h", "h", "-1h"):
        with pytest.raises(UsageError, match="expected a number"):
            seconds_of(text)
    with pytest.raises(UsageError, match="time zone"):
        ms_of("2026-11-23T14:00:00")


class _FailingFile:
    """A local file whose disk fails in its midst."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._left = 2

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def read(self, count: int) -> bytes:
        self._left -= 1
        if self._left < 0:
            raise OSError(5, "Input/output error")
        found: bytes = self._file.read(count)
        return found


@pytest.mark.parametrize("address", ["place", "mock:///bucket"])
def test_a_writer_that_fails_leaves_nothing(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow completes a file when its stream goes, whatever ended it."""
    place = BackupPlace(address if "://" in address else str(tmp_path / address))
    source, opened = tmp_path / "source", Path.open
    source.write_bytes(b"x" * (5 << 20))

    def fail(path: Path, *mode: Any) -> Any:
        file = opened(path, *mode)
        return _FailingFile(file) if path == source else file

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", fail)
        with pytest.raises(BackupError, match="Input/output error"):
            place.copy_in(source, "log/file")
    assert place.sizes("") == {}
    assert place.unfinished("log") == []
    place.copy_in(source, "log/file")
    assert place.sizes("log") == {"file": 5 << 20}


def test_an_object_store_holds_the_same(made: MadeBackup) -> None:
    """Arrow's own stand-in for one: what is written appears when its stream is closed."""
    store = BackupPlace("mock:///bucket")
    manifest = made.chosen()
    for path in manifest.files:
        store.copy_in(made.root / path, f"{manifest.folder}/{path}")
    keep_backup(store, manifest)
    assert find_backups(store).whole == [manifest]
    assert store.sizes(manifest.folder)[segment_path(manifest.segments[0])] == manifest.segments[0].bytes
    assert verify_backup(store, manifest)[0].entries == 40
    store.delete(f"{manifest.folder}/{segment_path(manifest.segments[0])}")
    with pytest.raises(BackupError, match="it is not there"):
        verify_backup(store, manifest)
