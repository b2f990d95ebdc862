"""The file store against a plain model of it, and as every machine is checked."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rsm_spark.files.commands import (
    AppendFile,
    CreateFile,
    DeleteEntry,
    FileCommand,
    ListEntries,
    MakeDirectory,
    ReadFile,
    RenameEntry,
    RenameRule,
    SetFileTimes,
    SetQuota,
    ShowEntry,
    SumEntries,
    encode,
)
from rsm_spark.files.machine import FileMachine
from rsm_spark.files.records import ENTRIES_TABLE, PARTS_TABLE, ROOT, TRASH
from rsm_spark.testing import check_machine, simulate
from tests.sets import examples
from tests.unit.rsm_spark.files.asked_store import Store


class Model:
    """Files as a dict of paths, directories as a set: all by plain prefixes."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.directories = {"/"}

    def _above(self, path: str) -> list[str]:
        parts = path.split("/")[1:-1]
        return ["/" + "/".join(parts[:count]) for count in range(1, len(parts) + 1)]

    def _below(self, path: str) -> list[str]:
        return [one for one in (*self.files, *self.directories) if one.startswith(path + "/")]

    def write(self, path: str, content: bytes, overwrite: bool) -> Any:
        if any(one in self.files for one in self._above(path)):
            return "parent-is-file"
        if path in self.directories or (path in self.files and not overwrite):
            return "exists"
        self.directories.update(self._above(path))
        self.files[path] = content
        return True

    def mkdir(self, path: str) -> Any:
        if any(one in self.files for one in self._above(path)):
            return "parent-is-file"
        if path in self.files:
            return "exists"
        self.directories.update([*self._above(path), path])
        return True

    def delete(self, path: str, recursive: bool) -> Any:
        if path not in self.files and path not in self.directories:
            return False
        below = self._below(path)
        if below and not recursive:
            return "not-empty"
        for one in [path, *below]:
            self.files.pop(one, None)
            self.directories.discard(one)
        return True

    def rename(self, source: str, to: str, overwrite: bool) -> Any:
        if source not in self.files and source not in self.directories:
            return "not-found"
        if source == to:
            return "exists"
        if to.startswith(source + "/"):
            return "invalid"
        above = self._above(to)
        if any(one in self.files for one in above):
            return "parent-is-file"
        if any(one not in self.directories for one in above):
            return "not-found"
        if to in self.files or to in self.directories:
            if not overwrite:
                return "exists"
            if (to in self.files) != (source in self.files):
                return "invalid"
            if self._below(to):
                return "not-empty"
            self.files.pop(to, None)
            self.directories.discard(to)
        for one in [source, *self._below(source)]:
            moved = to + one[len(source) :]
            if one in self.files:
                self.files[moved] = self.files.pop(one)
            else:
                self.directories.discard(one)
                self.directories.add(moved)
        return True


_NAMES = st.sampled_from(["a", "b", "c"])
_PATHS = st.lists(_NAMES, min_size=1, max_size=4).map(lambda names: "/" + "/".join(names))
_CONTENTS = st.binary(max_size=6)
_STEPS = st.one_of(
    st.tuples(st.just("write"), _PATHS, _CONTENTS, st.booleans()),
    st.tuples(st.just("mkdir"), _PATHS),
    st.tuples(st.just("delete"), _PATHS, st.booleans()),
    st.tuples(st.just("rename"), _PATHS, _PATHS, st.booleans()),
    st.tuples(st.just("wait")),
    st.tuples(st.just("restart")),
)


def _command(kind: str, *given: Any) -> FileCommand:
    match kind:
        case "write":
            return CreateFile(given[0], given[1], "ann", 0o644, given[2])
        case "mkdir":
            return MakeDirectory(given[0], "ann", 0o755)
        case "delete":
            return DeleteEntry(*given)
    return RenameEntry(given[0], given[1], RenameRule.OVERWRITE if given[2] else RenameRule.NEW)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(_STEPS, max_size=40))
def test_the_store_is_what_a_plain_model_of_it_is(steps: list[tuple[Any, ...]]) -> None:
    store, model = Store(), Model()
    for kind, *given_to in steps:
        if kind == "wait":
            store.harness.advance(1_000)
        elif kind == "restart":
            store.harness.restart()
            store.machine = store.harness.machine  # type: ignore[assignment]
        else:
            assert store.run(_command(kind, *given_to)) == getattr(model, kind)(*given_to), (kind, given_to)
    _assert_equal(store, model)
    store.harness.advance(10_000)
    _assert_equal(store, model)
    assert len(store.harness.rows(ENTRIES_TABLE)) == len(model.files) + len(model.directories) - 1
    assert len(store.harness.rows(PARTS_TABLE)) == sum(1 for content in model.files.values() if content)


def _assert_equal(store: Store, model: Model) -> None:
    files: dict[str, bytes] = {}
    directories = {"/"}
    waiting = [""]
    while waiting:
        path = waiting.pop()
        for name in store.names(path or "/"):
            below = f"{path}/{name}"
            if store.ask(ShowEntry(below)).is_directory:
                directories.add(below)
                waiting.append(below)
            else:
                files[below] = store.read(below)
    assert (files, directories) == (model.files, model.directories)
    held = store.machine.tree.held(ROOT)
    assert (held.files, held.directories) == (len(files), len(directories) - 1)
    assert held.size == sum(map(len, files.values()))


_COMMANDS = st.one_of(
    st.builds(CreateFile, _PATHS, _CONTENTS, st.just("ann"), st.sampled_from([0o644, 0o7777]), st.booleans()),
    st.builds(AppendFile, _PATHS, _CONTENTS),
    st.builds(MakeDirectory, _PATHS, st.just("ann"), st.just(0o755)),
    st.builds(RenameEntry, _PATHS, _PATHS, st.sampled_from(RenameRule)),
    st.builds(DeleteEntry, _PATHS, st.booleans()),
    st.builds(SetFileTimes, _PATHS, st.integers(-1, 9), st.none()),
    st.builds(SetQuota, _PATHS, st.sampled_from([None, -1, 0, 3]), st.sampled_from([None, -1, 5])),
).map(encode)
_QUERIES = st.one_of(
    st.builds(ShowEntry, _PATHS), st.builds(ListEntries, _PATHS), st.builds(ReadFile, _PATHS, st.integers(-1, 9)),
    st.builds(SumEntries, _PATHS),
).map(encode)  # fmt: skip


def test_the_file_store_is_a_state_machine() -> None:
    check_machine(FileMachine, _COMMANDS, queries=_QUERIES)


def test_replicas_of_a_file_store_agree_whatever_fails() -> None:
    """Clients write, rename and delete; nothing is in two directories, and what lies below is counted right."""

    def draw(rng: random.Random) -> bytes:
        paths = ["/" + "/".join(rng.choice("abc") for _ in range(rng.randint(1, 3))) for _ in range(2)]
        drawn: list[FileCommand] = [
            CreateFile(paths[0], rng.randbytes(rng.randint(0, 50)), "ann", 0o644, True),
            MakeDirectory(paths[0], "ann", 0o755),
            RenameEntry(paths[0], paths[1], RenameRule.OVERWRITE),
            DeleteEntry(paths[0], True),
        ]
        return encode(rng.choice(drawn))

    def invariant(machine: FileMachine) -> None:
        rows = list(machine.items(ENTRIES_TABLE))
        numbers = [row[0] for _, row in rows]
        assert len(numbers) == len(set(numbers)), "something lies in two places"
        files = {row[0] for _, row in rows if not row[1]}
        assert {key[0] for key, _ in machine.items(PARTS_TABLE)} <= files, "a content belongs to nobody"
        held = [machine.tree.held(number) for number in (ROOT, TRASH)]
        assert sum(one.names for one in held) == len(rows)

    summary = simulate(FileMachine, draw, seeds=examples(3), invariant=invariant)
    assert summary.acknowledged > 100
