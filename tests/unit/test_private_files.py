"""Folders of data are closed to others, old ones too; secrets that others may read are refused."""

from __future__ import annotations

import os
import stat

import pytest

from ledger.errors import UsageError
from ledger.login import read_login
from ledger.private_files import make_private, refuse_loose
from ledger.storage.disk import RealDisk
from ledger.tls import TlsSettings, client_context
from ledger.zookeeper.auth import login_of
from rsm_spark.runtime.folder_lock import locked
from rsm_spark.snapshots.disk import SnapshotDisk
from rsm_spark.transport.security import Security


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def _loose_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_what_is_made_is_its_owners_alone(tmp_path) -> None:
    make_private(tmp_path / "a" / "b")
    assert mode(tmp_path / "a" / "b") == 0o700
    disk = RealDisk()
    disk.make_dirs(str(tmp_path / "store"))
    disk.close(disk.open(str(tmp_path / "store" / "journal"), create=True))
    assert (mode(tmp_path / "store"), mode(tmp_path / "store" / "journal")) == (0o700, 0o600)
    snapshots = SnapshotDisk()
    snapshots.make_folder(tmp_path / "snapshots" / "one")
    for open_file in (snapshots.create, snapshots.append):
        open_file(tmp_path / "snapshots" / "one" / open_file.__name__).close()
    assert [mode(x) for x in sorted((tmp_path / "snapshots").rglob("*"))] == [0o700, 0o600, 0o600]
    with locked(tmp_path / "replica"):
        assert (mode(tmp_path / "replica"), mode(tmp_path / "replica" / "lock")) == (0o700, 0o600)


def test_an_older_folder_is_closed_with_a_line_and_keeps_what_lies_in_it(tmp_path, caplog) -> None:
    old = tmp_path / "old"
    old.mkdir()
    (old / "data").write_text("x")
    make_private(old)
    make_private(old)
    assert (mode(old), (old / "data").read_text()) == (0o700, "x")
    assert [x.getMessage().count("mode 0755") for x in caplog.records] == [1]


def test_a_folder_of_everybody_is_left_as_it_is_and_told_of(tmp_path, caplog) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    make_private(shared)
    assert mode(shared) == 0o1777
    assert "not this process's own" in caplog.text


@pytest.mark.parametrize(("bits", "is_refused"), [(0o600, False), (0o400, False), (0o604, True), (0o622, True)])
def test_a_secret_that_others_may_read_or_change_is_refused(tmp_path, bits: int, is_refused: bool) -> None:
    path = tmp_path / "secret"
    path.write_text("x")
    path.chmod(bits)
    if is_refused:
        with pytest.raises(UsageError, match=f"mode {bits:04o} lets others read or change it: chmod 600 {path}"):
            refuse_loose(path, "the token")
    else:
        refuse_loose(path, "the token")
    refuse_loose(tmp_path / "none", "the token")


def test_a_group_may_read_only_what_root_owns(tmp_path, monkeypatch) -> None:
    path = tmp_path / "secret"
    path.write_text("x")
    path.chmod(0o640)
    found = path.stat()
    for owner, is_refused in ((0, False), (1000, True)):
        fields = list(found)
        fields[stat.ST_UID] = owner
        monkeypatch.setattr("ledger.private_files.os.stat", lambda _path, fields=fields: os.stat_result(fields))
        if is_refused:
            with pytest.raises(UsageError, match="chmod 600"):
                refuse_loose(path, "the token")
        else:
            refuse_loose(path, "the token")


def test_each_reader_of_a_secret_looks_at_its_mode(tmp_path) -> None:
    path = tmp_path / "secret"
    path.write_text("digest:user:password-long-enough\n")
    path.chmod(0o644)
    for read in (
        lambda: read_login(str(path)),
        lambda: login_of(str(path)),
        lambda: client_context(TlsSettings(cert=str(path), key=str(path))),
        Security(token_file=str(path)).token,
    ):
        with pytest.raises(UsageError, match="chmod 600"):
            read()
