"""Code is packed the same way each time, and nothing but code."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import pytest

from broker.client.code_archive import pack_code
from broker.wire.code_declaration import CodeDeclaration, read_declaration
from ledger.errors import UsageError


def _package(folder: Path) -> Path:
    (folder / "mails" / "__pycache__").mkdir(parents=True)
    (folder / "mails" / "__init__.py").write_text("")
    (folder / "mails" / "send.py").write_text("def send(): ...")
    (folder / "mails" / "__pycache__" / "send.pyc").write_bytes(b"x")
    (folder / "mails" / ".secret").write_text("x")
    return folder / "mails"


ENTRIES = ["mails.send:send"]


def _names(content: bytes) -> list[str]:
    return zipfile.ZipFile(io.BytesIO(content)).namelist()


def test_the_same_files_give_the_same_bytes_whenever_they_were_written(tmp_path: Path) -> None:
    first, second = _package(tmp_path / "a"), _package(tmp_path / "b")
    os.utime(second / "send.py", (1, 1))
    (second / "send.py").chmod(0o755)
    assert pack_code(first, entries=ENTRIES) == pack_code(second, entries=ENTRIES)
    assert pack_code(first, entries=ENTRIES).name != pack_code(first, entries=["mails.send:other"]).name
    (second / "send.py").write_text("def send(): pass")
    assert pack_code(first, entries=ENTRIES).name != pack_code(second, entries=ENTRIES).name


def test_a_package_keeps_its_name_and_leaves_hidden_files_and_byte_code_behind(tmp_path: Path) -> None:
    names = ["rsm-pool.toml", "mails/__init__.py", "mails/send.py"]
    assert _names(pack_code(_package(tmp_path), entries=ENTRIES).content) == names


def test_a_folder_that_is_no_package_is_packed_without_its_name(tmp_path: Path) -> None:
    _package(tmp_path / "src")
    names = ["rsm-pool.toml", "mails/__init__.py", "mails/send.py"]
    assert _names(pack_code(tmp_path / "src", entries=ENTRIES).content) == names


def test_a_module_is_packed_alone(tmp_path: Path) -> None:
    archive = pack_code(_package(tmp_path) / "send.py", entries=["send:send"])
    assert _names(archive.content) == ["rsm-pool.toml", "send.py"]
    assert archive.name.startswith("send-")


def _declared(content: bytes) -> bytes:
    return zipfile.ZipFile(io.BytesIO(content)).read("rsm-pool.toml")


def test_what_tasks_may_call_is_in_the_archive_by_the_folders_word_or_the_callers(tmp_path: Path) -> None:
    package = _package(tmp_path)
    packed = pack_code(package, entries=ENTRIES, network=True)
    assert read_declaration(_declared(packed.content)) == CodeDeclaration(ENTRIES, network=True)
    (package / "rsm-pool.toml").write_text('entries = ["mails:send"]')
    packed = pack_code(package)
    assert _declared(packed.content) == b'entries = ["mails:send"]'
    assert _names(packed.content).count("rsm-pool.toml") == 1
    with pytest.raises(UsageError, match="no entries beside it"):
        pack_code(package, entries=ENTRIES)


def test_code_that_declares_nothing_is_not_packed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing says what tasks may call"):
        pack_code(_package(tmp_path))
    with pytest.raises(UsageError, match="is private and is not called"):
        pack_code(tmp_path / "mails", entries=["mails.send:_send"])
    (tmp_path / "mails" / "rsm-pool.toml").write_text("entry = 5")
    with pytest.raises(UsageError, match=r"rsm-pool.toml cannot be used: .*Expected: entries ="):
        pack_code(tmp_path / "mails")


def test_a_link_is_refused(tmp_path: Path) -> None:
    (_package(tmp_path) / "passwords.py").symlink_to("/etc/passwd")
    with pytest.raises(UsageError, match="it is a link"):
        pack_code(tmp_path / "mails", entries=ENTRIES)


def test_what_is_too_large_or_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such"):
        pack_code(tmp_path / "none")
    (tmp_path / "large.bin").write_bytes(os.urandom(4 * 1024 * 1024))
    with pytest.raises(UsageError, match="at most"):
        pack_code(tmp_path, entries=ENTRIES)
