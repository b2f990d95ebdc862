"""Paths of clients: a prefix is a directory, for commands and queries alike."""

from __future__ import annotations

import pytest

from ledger.rights.principal import ClientAccess, Principal, Role
from rsm_spark.files.commands import (
    AppendFile,
    BeginUpload,
    CreateFile,
    DeleteEntry,
    DropUpload,
    EndUpload,
    FileCommand,
    ListEntries,
    MakeDirectory,
    ReadFile,
    RenameEntry,
    RenameRule,
    SetFileTimes,
    SetPermission,
    SetQuota,
    ShowEntry,
    SumEntries,
    WriteUpload,
    encode,
)
from rsm_spark.files.scopes import FileScopes, path_fault

_EVE = Principal(name="eve", role=Role.CLIENT, access=ClientAccess.WRITE, prefix=b"/an")
_ROOT = Principal(name="root", role=Role.OPERATOR)


@pytest.mark.parametrize(
    ("path", "is_hers"),
    [
        ("/an", True),
        ("/an/", True),
        ("/an/x/y", True),
        ("/ann", False),
        ("/ann/x", False),
        ("/", False),
        ("/an/../x", False),
    ],
)
def test_a_prefix_is_a_directory(path: str, is_hers: bool) -> None:
    assert (path_fault(_EVE, path) == "") is is_hers
    assert path_fault(_ROOT, path) == ""


def _commands(path: str) -> list[FileCommand]:
    return [
        CreateFile(path, b"", "eve", 0o644, True), AppendFile(path, b""), MakeDirectory(path, "eve", 0o755),
        RenameEntry("/an/x", path, RenameRule.NEW), RenameEntry(path, "/an/x", RenameRule.NEW),
        DeleteEntry(path, True), SetFileTimes(path, 0, 0), SetPermission(path, 0o600), SetQuota(path, 1, 1),
        BeginUpload(path, "eve", 0o644, True), WriteUpload(path, 1, 0, b"x"), EndUpload(path, 1), DropUpload(path, 1),
    ]  # fmt: skip


def test_every_command_and_query_is_looked_at() -> None:
    scopes = FileScopes()
    for command in _commands("/ann/secret"):
        assert scopes.command_fault(encode(command), _EVE), command
    for command in _commands("/an/own"):
        assert scopes.command_fault(encode(command), _EVE) == "", command
        assert scopes.is_governing(encode(command)) is isinstance(command, SetQuota)
    for kind in (ShowEntry, ListEntries, ReadFile, SumEntries):
        assert scopes.query_fault(encode(kind("/ann/secret")), _EVE)
        assert scopes.query_fault(encode(kind("/an/own")), _EVE) == ""
    assert scopes.command_fault(b"?", _EVE)
    assert scopes.query_fault(b"?", _EVE)
    assert not scopes.is_governing(b"?")
    assert scopes.watch_fault("entries", b"", None, _EVE)
