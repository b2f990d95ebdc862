"""The rules of the file store's machine, one by one."""

from __future__ import annotations

import random

import pytest

from rsm_spark.files.commands import (
    AppendFile,
    EntriesSum,
    EntryShown,
    FileRefused,
    ListEntries,
    RenameEntry,
    RenameRule,
    SetFileTimes,
    SetPermission,
    SetQuota,
    ShowEntry,
    SumEntries,
    decode_reply,
    decode_result,
    encode,
)
from rsm_spark.files.limits import PART_BYTES_MAX, PARTS_MAX
from rsm_spark.files.records import ENTRIES_TABLE, PARTS_TABLE, QUOTAS_TABLE
from tests.unit.rsm_spark.files.asked_store import Store


def test_a_file_is_there_whole_with_the_directories_above_it() -> None:
    store = Store()
    assert store.write("/a/b/c.txt", b"hello") is True
    assert store.read("/a/b/c.txt") == b"hello"
    assert (store.names("/"), store.names("/a"), store.names("/a/b")) == (["a"], ["b"], ["c.txt"])
    shown = store.ask(ShowEntry("/a/b/c.txt"))
    assert isinstance(shown, EntryShown)
    assert (shown.size, shown.owner, shown.permission, shown.is_directory) == (5, "ann", 0o644, False)
    assert shown.modified_ms == store.harness.now_ms
    assert store.read("/a/b/c.txt", 1, 3) == b"ell"
    assert store.read("/a/b/c.txt", 5) == b""
    assert store.read("/a/b/c.txt", 6) == "invalid"


def test_a_name_that_is_taken_is_refused_or_replaced_as_the_caller_says() -> None:
    store = Store()
    store.write("/f", b"1")
    assert store.write("/f", b"2") == "exists"
    assert store.write("/f", b"2", overwrite=True) is True
    assert store.read("/f") == b"2"
    assert len(store.harness.rows(PARTS_TABLE)) == 1, "the content of before is gone"
    store.mkdir("/d")
    assert store.write("/d", overwrite=True) == "exists"
    assert store.write("/f/g") == "parent-is-file"
    assert store.mkdir("/f") == "exists"
    assert store.mkdir("/f/g") == "parent-is-file"
    assert store.mkdir("/d") is True


@pytest.mark.parametrize(
    "path",
    ["", "a", "/a//b", "/a/./b", "/a/../b", "/a:b", "/a\x00b", "/a\nb", "/" + "x" * 256, "/a" * 65, "/" + "y/" * 2500],
)
def test_what_is_no_path_is_refused_by_commands_and_queries(path: str) -> None:
    store = Store()
    assert store.write(path) == "invalid"
    assert store.rename("/x", path) == "invalid"
    assert store.ask(ShowEntry(path)) == "invalid"
    assert store.harness.rows(ENTRIES_TABLE) == {}


def test_bytes_that_are_no_command_are_refused_and_change_nothing() -> None:
    store = Store()
    for text in (b"", b"\xc1", b"\x91\x01", b"\x92\x05\xff", encode(ShowEntry("/"))[:1] + b"\x63"):
        assert isinstance(decode_reply(store.harness.execute(text).reply), FileRefused)
        assert isinstance(decode_result(store.harness.query(text)), FileRefused)


def test_a_rename_takes_a_directory_with_all_below_it_and_logs_two_records() -> None:
    store = Store()
    for number in range(50):
        store.write(f"/old/deep/{number}", b"%d" % number)
    done = store.harness.execute(encode(RenameEntry("/old", "/new", RenameRule.NEW)))
    assert [record.name for record in done.records] == ["removed", "entered"]
    assert store.read("/new/deep/7") == b"7"
    assert store.ask(ShowEntry("/old")) == "not-found"
    found = store.ask(SumEntries("/new"))
    assert found == EntriesSum(50, 2, 90, -1, -1)


def test_renames_are_refused_as_hadoop_refuses_them() -> None:
    store = Store()
    for path in ("/f", "/g", "/d/x", "/full/y"):
        store.write(path)
    store.mkdir("/empty")
    assert store.rename("/nothing", "/z") == "not-found"
    assert store.rename("/f", "/f") == "exists"
    assert store.rename("/f", "/g") == "exists"
    assert store.rename("/d", "/d/below") == "invalid"
    assert store.rename("/", "/z") == "invalid"
    assert store.rename("/f", "/") == "invalid"
    assert store.rename("/f", "/no/where") == "not-found"
    assert store.rename("/f", "/g/z") == "parent-is-file"
    assert store.rename("/f", "/d", RenameRule.OVERWRITE) == "invalid"
    assert store.rename("/d", "/full", RenameRule.OVERWRITE) == "not-empty"
    assert store.rename("/d", "/empty", RenameRule.OVERWRITE) is True
    assert store.rename("/f", "/g", RenameRule.OVERWRITE) is True
    assert store.names("/") == ["empty", "full", "g"]
    assert store.names("/empty") == ["x"]


def test_the_first_rename_of_hadoop_moves_into_directories_and_says_no_instead_of_failing() -> None:
    store = Store()
    for path in ("/f", "/g", "/d/f2"):
        store.write(path)
    assert store.rename("/nothing", "/z", RenameRule.INTO) is False
    assert store.rename("/f", "/g", RenameRule.INTO) is False
    assert store.rename("/f", "/no/where", RenameRule.INTO) is False
    assert store.rename("/d", "/d/below", RenameRule.INTO) is False
    assert store.rename("/f", "/f", RenameRule.INTO) is True
    assert store.rename("/f", "/d", RenameRule.INTO) is True
    assert store.names("/d") == ["f", "f2"]
    store.write("/f")
    assert store.rename("/f", "/d", RenameRule.INTO) is False


def test_a_deep_directory_goes_at_once_and_its_rows_by_and_by() -> None:
    store = Store()
    for number in range(60):
        store.write(f"/d/{number % 5}/{number % 7}/{number}", b"x" * 10)
    store.mkdir("/d/empty")
    store.run(SetQuota("/d/3", 1_000, -1))
    assert store.delete("/d") == "not-empty"
    assert store.delete("/nothing") is False
    assert store.delete("/") == "invalid"
    assert store.delete("/d", recursive=True) is True
    assert store.names("/") == []
    store.harness.advance(1_000)
    for table in (ENTRIES_TABLE, PARTS_TABLE, QUOTAS_TABLE):
        assert store.harness.rows(table) == {}, table
    assert store.machine.next_due_ms(0) is None


def test_appends_add_parts_up_to_their_bounds() -> None:
    store = Store()
    assert store.run(AppendFile("/f", b"x")) == "not-found"
    store.write("/f", b"")
    for piece in (b"one ", b"", b"two ", b"three"):
        assert store.run(AppendFile("/f", piece)) is True
    assert store.read("/f") == b"one two three"
    assert store.read("/f", 3, 6) == b" two t"
    assert len(store.harness.rows(PARTS_TABLE)) == 3
    assert store.run(AppendFile("/f", b"x" * (PART_BYTES_MAX + 1))) == "too-large"
    assert store.write("/g", b"x" * (PART_BYTES_MAX + 1)) == "too-large"
    store.mkdir("/d")
    assert store.run(AppendFile("/d", b"x")) == "is-directory"
    store.write("/many", b"")
    for _ in range(PARTS_MAX):
        assert store.run(AppendFile("/many", b".")) is True
    assert store.run(AppendFile("/many", b".")) == "too-large"
    assert store.delete("/many") is True


def test_a_file_has_a_bound_however_it_is_written() -> None:
    store = Store()
    store.write("/f", b"x" * PART_BYTES_MAX)
    for _ in range(63):
        assert store.run(AppendFile("/f", b"x" * PART_BYTES_MAX)) is True
    assert store.run(AppendFile("/f", b"x")) == "too-large"


def test_quotas_bound_what_lies_below_and_count_moves_once() -> None:
    store = Store()
    store.mkdir("/a/in")
    store.mkdir("/b")
    assert store.run(SetQuota("/a", 3, 10)) is True
    assert store.write("/a/in/f", b"12345") is True
    assert store.write("/a/in/g", b"123456") == "bytes-quota"
    assert store.write("/a/in/f", b"1234567890", overwrite=True) is True
    assert store.run(AppendFile("/a/in/f", b"1")) == "bytes-quota"
    assert store.mkdir("/a/x/y") == "names-quota"
    assert store.mkdir("/a/x") is True
    assert store.rename("/a/in/f", "/a/x/f") is True, "below the same quota nothing is more than before"
    store.write("/b/h", b"")
    assert store.rename("/b/h", "/a/h") == "names-quota"
    assert store.ask(SumEntries("/a")) == EntriesSum(1, 3, 10, 3, 10)
    assert store.run(SetQuota("/a", -1, None)) is True
    assert store.rename("/b/h", "/a/h") is True
    assert store.run(SetQuota("/a", None, -1)) is True
    assert store.harness.rows(QUOTAS_TABLE) == {}
    assert store.run(SetQuota("/a/h", 1, 1)) == "no-directory"
    assert store.run(SetQuota("/a", 0, 1)) == "invalid"


def test_times_and_permissions_are_what_was_set() -> None:
    store = Store()
    store.write("/f")
    assert store.run(SetFileTimes("/f", 1_000, None)) is True
    assert store.run(SetPermission("/f", 0o600)) is True
    shown = store.ask(ShowEntry("/f"))
    assert (shown.modified_ms, shown.accessed_ms, shown.permission) == (1_000, store.harness.now_ms, 0o600)
    assert store.run(SetFileTimes("/f", -5, None)) == "invalid"
    assert store.run(SetPermission("/f", 0o7777)) == "invalid"
    assert store.run(SetPermission("/", 0o600)) == "invalid"


def test_a_leader_without_memory_takes_deletes_and_renames_alone() -> None:
    store = Store()
    store.write("/f")
    store.machine.is_full = True
    assert store.write("/g") == "full"
    assert store.mkdir("/d") == "full"
    assert store.run(AppendFile("/f", b"x")) == "full"
    assert store.rename("/f", "/g") is True
    assert store.delete("/g") is True


def test_a_long_listing_comes_in_pages_in_order() -> None:
    store = Store()
    names = [f"{number:04d}" for number in range(25)]
    for name in random.Random(3).sample(names, len(names)):
        store.write(f"/d/{name}")
    seen: list[str] = []
    while True:
        page = store.ask(ListEntries("/d", seen[-1] if seen else "", 10))
        seen += [entry.name for entry in page.entries]
        if not page.has_more:
            break
    assert seen == names
    assert store.names("/d/0003") == [""], "a file is listed as itself"
