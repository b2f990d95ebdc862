"""Code is packed the same way each time, and nothing but code."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import pytest

from broker.client.code_archive import pack_code
from ledger.errors import UsageError


def _package(folder: Path) -> Path:
    (folder / "mails" / "__pycache__").mkdir(parents=True)
    (folder / "mails" / "__init__.py").write_text("")
    (folder / "mails" / "send.py").write_text("def send(): ...")
    (folder / "mails" / "__pycache__" / "send.pyc").write_bytes(b"x")
    (folder / "mails" / ".secret").write_text("x")
    return folder / "mails"


def _names(content: bytes) -> list[str]:
    return zipfile.ZipFile(io.BytesIO(content)).namelist()


def test_the_same_files_give_the_same_bytes_whenever_they_were_written(tmp_path: Path) -> None:
    first, second = _package(tmp_path / "a"), _package(tmp_path / "b")
    os.utime(second / "send.py", (1, 1))
    (second / "send.py").chmod(0o755)
    assert pack_code(first) == pack_code(second)
    (second / "send.py").write_text("def send(): pass")
    assert pack_code(first).name != pack_code(second).name


def test_a_package_keeps_its_name_and_leaves_hidden_files_and_byte_code_behind(tmp_path: Path) -> None:
    assert _names(pack_code(_package(tmp_path)).content) == ["mails/__init__.py", "mails/send.py"]


def test_a_folder_that_is_no_package_is_packed_without_its_name(tmp_path: Path) -> None:
    _package(tmp_path / "src")
    assert _names(pack_code(tmp_path / "src").content) == ["mails/__init__.py", "mails/send.py"]


def test_a_module_is_packed_alone(tmp_path: Path) -> None:
    archive = pack_code(_package(tmp_path) / "send.py")
    assert _names(archive.content) == ["send.py"]
    assert archive.name.startswith("send-")


def test_a_link_is_refused(tmp_path: Path) -> None:
    (_package(tmp_path) / "passwords.py").symlink_to("/etc/passwd")
    with pytest.raises(UsageError, match="it is a link"):
        pack_code(tmp_path / "mails")


def test_what_is_too_large_or_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such"):
        pack_code(tmp_path / "none")
    (tmp_path / "large.bin").write_bytes(os.urandom(4 * 1024 * 1024))
    with pytest.raises(UsageError, match="at most"):
        pack_code(tmp_path)
