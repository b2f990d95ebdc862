"""The sets of tests: none is in no set, shards take each file once, and what is named exists."""

from __future__ import annotations

import ast

import pytest

from tests import sets


def _files() -> list[str]:
    return sorted(path.relative_to(sets.TESTS).as_posix() for path in sets.TESTS.rglob("test_*.py"))


def test_every_folder_of_tests_is_in_a_set() -> None:
    assert {name.partition("/")[0] for name in _files()} == {*sets.QUICK, *sets.REAL, "compat"}


@pytest.mark.parametrize("test", sets.SMOKE)
def test_each_smoke_test_exists_and_is_run_by_make_test(test: str) -> None:
    name, _, function = test.partition("::")
    defined = [
        node
        for node in ast.walk(ast.parse((sets.TESTS / name).read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == function
    ]
    assert len(defined) == 1
    assert name.partition("/")[0] in sets.REAL
    marks = [ast.unparse(mark) for mark in defined[0].decorator_list]
    assert not [mark for mark in marks if mark.startswith(("pytest.mark.slow", "pytest.mark.skip"))]


@pytest.mark.parametrize("count", [1, 2, 4, 7])
def test_shards_take_each_file_of_real_things_once(count: int) -> None:
    taken = sorted(name for number in range(1, count + 1) for name in sets.shard_files("real", f"{number}/{count}"))
    assert taken == [name for name in _files() if name.partition("/")[0] in sets.REAL]


def test_no_shard_of_four_is_much_longer_than_another() -> None:
    def seconds(number: int, *, is_spark: bool) -> int:
        files = sets.shard_files("real", f"{number}/4")
        return sum(sets.seconds(name) for name in files if name.startswith("spark/") is is_spark)

    for is_spark in (True, False):
        loads = [seconds(number, is_spark=is_spark) for number in range(1, 5)]
        longest_file = max(sets.seconds(name) for name in _files() if name.startswith("spark/") is is_spark)
        assert max(loads) - min(loads) <= longest_file


def test_every_file_whose_time_is_known_exists() -> None:
    assert set(sets.SECONDS) <= set(_files())


@pytest.mark.parametrize("shard", ["0/4", "5/4", "1", "a/b", "-1/4"])
def test_a_shard_that_is_none_is_refused(shard: str) -> None:
    with pytest.raises(pytest.UsageError, match=f"--shard {shard}: must be K/N"):
        sets.shard_files("real", shard)


def test_a_run_has_one_process_for_spark_and_the_quick_set_one_cluster() -> None:
    quick = {sets.scope_of(f"tests/{test}", "quick") for test in sets.SMOKE}
    assert quick == {"tests/spark", "tests/e2e/test_demo.py"}
    for chosen in ("real", "rest", None):
        assert sets.scope_of("tests/spark/test_stream.py::test_a", chosen) == "tests/spark"
        assert sets.scope_of("tests/e2e/test_readme.py::test_a", chosen) == "tests/e2e/test_readme.py"
    assert sets.scope_of("tests/unit/test_cli.py::test_a", "quick") == "tests/unit/test_cli.py"


@pytest.mark.parametrize(
    ("marks", "limit_s"), [([], []), (["slow"], [3600]), (["slow", pytest.mark.timeout(900)], [900])]
)
def test_a_slow_test_has_time_unless_it_says_how_much(
    marks: list[str | pytest.MarkDecorator], limit_s: list[int], request: pytest.FixtureRequest
) -> None:
    item = pytest.Function.from_parent(request.node.parent, name="test_of_minutes", callobj=lambda: None)
    for mark in marks:
        item.add_marker(mark)
    assert sets.select([item], request.config) == [item]
    assert [mark.args[0] for mark in item.iter_markers("timeout")] == limit_s


@pytest.mark.parametrize(("effort", "count"), [("", 30), ("1", 30), ("10", 300)])
def test_the_effort_says_how_many_examples_there_are(effort: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RSM_EFFORT", effort)
    assert sets.examples(30) == count


@pytest.mark.parametrize(("effort", "count"), [("1", 2), ("5", 10), ("10", 12)])
def test_some_of_many_points_are_different_ones_and_all_of_them_in_the_end(
    effort: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RSM_EFFORT", effort)
    chosen = sets.some_of(range(12), 2)
    assert len(set(chosen)) == len(chosen) == count
    assert set(chosen) <= set(range(12))


def test_a_hunt_begins_with_the_seed_that_is_known_and_is_named_where_that_finds_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RSM_EFFORT", "1")
    monkeypatch.setattr(sets, "late_hunts", {})
    hunt = sets.hunt_order(5, 3)
    assert next(hunt) == 3
    assert not sets.late_hunts
    assert list(hunt) == [0, 1, 2, 4]
    (told,) = sets.late_hunts.values()
    assert told == "known=3 did not find it, 4 was the last seed tried"
    monkeypatch.setenv("RSM_EFFORT", "10")
    assert list(sets.hunt_order(5, 3)) == [0, 1, 2, 3, 4]
