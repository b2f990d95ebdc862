"""Which tests run together: the sets of the Makefile, their shards, and how much each property is tried.

    simulations   marked `alone`: each keeps every processor busy, so nothing runs beside them
    quick         tests/tidy, unit, model, conformance, and SMOKE
    real          tests/integration, hostile, spark and e2e: real processes; the rest of tests/sim. `--shard 1/4` takes
                  a part, in whole files
    rest          all but `simulations`, tests/compat too

Whole files are left out before they are imported. Without `--set` pytest runs what its command line names.
"""

from __future__ import annotations

import json
import math
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

TESTS = Path(__file__).parent
SETS = ("simulations", "quick", "real", "rest")
QUICK = ("tidy", "unit", "model", "conformance")
REAL = ("integration", "hostile", "spark", "e2e", "sim")

SMOKE = (
    "integration/test_ledger_client.py::test_appends_go_on_while_one_bookie_of_three_is_killed_and_comes_back",
    "integration/test_store_cluster.py::test_three_replicas_serve_one_map_and_hand_it_over",
    "integration/test_broker_failover.py::test_runs_go_on_and_nothing_is_lost_or_doubled_when_the_leader_is_killed",
    "spark/test_stream.py::test_a_restart_goes_on_from_the_checkpoint_across_a_roll",
    "spark/test_materialize.py::test_the_table_is_the_map_with_its_position_and_digest",
    "e2e/test_readme.py::test_the_readme_shows_the_map_and_spark",
    "e2e/test_readme.py::test_the_map_in_ten_lines_runs",
    "e2e/test_readme.py::test_the_commands_on_a_running_replica_do_what_they_say",
    "e2e/test_readme.py::test_spark_in_six_lines_runs",
    "e2e/test_demo.py::test_a_short_demo_ends_with_equal_answers",
)
"""Of each real thing one test: a killed bookie, failovers, a stream, a table, the README's commands, the demo."""

_DEMO = "e2e/test_demo.py"
_SECONDS_UNKNOWN = 10
_SECONDS_WORTH_KNOWING = 3
_SLOW_S_MAX = 3600
"""Ends a test marked `slow` that says no limit of its own: the limit of the others is too short on a busy machine."""

_SECONDS_FILE = TESTS / "seconds.json"
SECONDS: dict[str, int] = json.loads(_SECONDS_FILE.read_text())
"""Of the longest files, as `--measure` wrote them: by it shards are about equally long, and long files begin first. A
file with a wrong number costs time, never a test."""

late_hunts: dict[str, str] = {}
"""Tests whose hunt did not end with its first seed: what the summary of a run says of them."""


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("sets of tests")
    group.addoption("--set", choices=SETS, dest="test_set", help="one set of tests, as tests/sets.py describes them")
    group.addoption("--shard", metavar="K/N", help="of the files of the set part K of N")
    group.addoption("--measure", action="store_true", help="write how long each file took to tests/seconds.json")
    group.addoption("--effort", type=int, help="how many times the examples of fuzzers (default: RSM_EFFORT or 1)")


def configure(config: pytest.Config) -> None:
    """Hand the effort on to the modules of tests and to the processes that they start."""
    effort = config.getoption("--effort")
    if effort is not None:
        if effort < 1:
            raise pytest.UsageError(f"--effort {effort}: must be 1 or more")
        os.environ["RSM_EFFORT"] = str(effort)
    if config.getoption("--shard"):
        _shard(config.getoption("--shard"))
    if config.getoption("--measure") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Stopwatch())


def bring_home(config: pytest.Config) -> None:
    """Hand what a process of a run has noted to the one that runs it."""
    if hasattr(config, "workeroutput"):
        config.workeroutput["late_hunts"] = late_hunts


def take_home(node: Any) -> None:
    """Take what another process has noted, if it came so far."""
    late_hunts.update(getattr(node, "workeroutput", {}).get("late_hunts", {}))


def tell(reporter: pytest.TerminalReporter) -> None:
    """Name the hunts that were long for nothing: whoever changed what is hunted through writes down the new seed."""
    if late_hunts:
        reporter.section("planted bugs that another seed finds")
        for test, told in sorted(late_hunts.items()):
            reporter.line(f"{test}: {told}")


class _Stopwatch:
    """Takes the time of each file of a run; on a busy machine the numbers mean little."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid.partition("::")[0].removeprefix("tests/")] += report.duration

    def pytest_sessionfinish(self) -> None:
        kept = {name: seconds for name, seconds in SECONDS.items() if name not in self._seconds}
        for name, seconds in self._seconds.items():
            if _folder(name) in REAL or seconds > _SECONDS_WORTH_KNOWING:
                kept[name] = math.ceil(seconds)
        _SECONDS_FILE.write_text(json.dumps(dict(sorted(kept.items())), indent=2) + "\n")


def is_left_out(path: Path, config: pytest.Config) -> bool:
    """Whether a file has no test of the set, or belongs to another shard."""
    if path.suffix != ".py" or TESTS not in path.parents:
        return False
    name = path.relative_to(TESTS).as_posix()
    chosen, shard = config.getoption("test_set"), config.getoption("--shard")
    is_member = {
        None: True,
        "simulations": _folder(name) == "sim",
        "quick": _folder(name) in QUICK or any(test.startswith(f"{name}::") for test in SMOKE),
        "real": _folder(name) in REAL,
        "rest": True,
    }[chosen]
    return not is_member or (bool(shard) and name not in shard_files(chosen, shard))


def select(items: list[pytest.Item], config: pytest.Config) -> list[pytest.Item]:
    """Return the tests of the set, the longest files first: what begins last should not end last."""
    for item in items:
        if _is_spark(_name(item)):
            item.add_marker("spark")
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_SLOW_S_MAX))
    chosen = config.getoption("test_set")
    if chosen is not None:
        items = [item for item in items if _is_chosen(item, chosen)]
    return sorted(items, key=lambda item: -SECONDS.get(_name(item), 0))


def _is_chosen(item: pytest.Item, chosen: str) -> bool:
    if (item.get_closest_marker("alone") is not None) is not (chosen == "simulations"):
        return False
    name = _name(item)
    test = f"{name}::{getattr(item, 'originalname', item.name)}"
    return chosen != "quick" or _folder(name) in QUICK or test in SMOKE


def shard_files(chosen: str | None, shard: str) -> frozenset[str]:
    """Return the files of one shard: the longest file goes to the shard that has least so far, and so on.

    Spark's files are shared out for themselves, since they run one after another in one process.
    """
    return _shard_files(chosen, *_shard(shard))


@cache
def _shard_files(chosen: str | None, number: int, count: int) -> frozenset[str]:
    mine: list[str] = []
    for is_spark in (True, False):
        files = [name for name in _files(chosen) if _is_spark(name) is is_spark]
        loads = [0] * count
        for name in sorted(files, key=lambda name: (-seconds(name), name)):
            lightest = loads.index(min(loads))
            loads[lightest] += seconds(name)
            if lightest == number - 1:
                mine.append(name)
    return frozenset(mine)


def _files(chosen: str | None) -> list[str]:
    names = sorted(path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py"))
    return [name for name in names if chosen != "real" or _folder(name) in REAL]


def _shard(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise pytest.UsageError(f"--shard {text}: must be K/N with 1 <= K <= N, such as 1/4")
    return int(number), int(count)


def seconds(name: str) -> int:
    """Return how long a file takes, roughly."""
    return SECONDS.get(name, _SECONDS_UNKNOWN)


def _name(item: pytest.Item) -> str:
    return item.path.relative_to(TESTS).as_posix()


def _folder(name: str) -> str:
    return name.partition("/")[0]


def _is_spark(name: str) -> bool:
    return name.startswith("spark/")


def scope_of(nodeid: str, chosen: str | None) -> str:
    """Return what a test shares a process with: its file; one JVM a run, so all of Spark; one cluster in the quick set.

    The demonstration starts all of its own, and takes longest.
    """
    file = nodeid.partition("::")[0]
    name = file.removeprefix("tests/")
    shares_cluster = chosen == "quick" and _folder(name) in REAL and name != _DEMO
    return "tests/spark" if _is_spark(name) or shares_cluster else file


class Scheduling(LoadFileScheduling):
    """Whole files to one process, and those that share a JVM or a cluster to the same one."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid, self.config.getoption("test_set"))


def effort() -> int:
    """How much is tried: 1 in `make test`, 10 in `make test-all`."""
    return int(os.environ.get("RSM_EFFORT") or 1)


def examples(count: int) -> int:
    """Return how many examples to try where an effort of 1 tries `count`."""
    return count * effort()


def hunt_order(budget: int, known: int) -> Iterator[int]:
    """Yield the seeds below `budget`: at an effort of 1 first the one that has found a planted bug before.

    A change of what is hunted through may make it another one: then the hunt takes longer, and comes to the same end.
    """
    if effort() > 1:
        yield from range(budget)
        return
    yield known
    test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
    for seed in range(budget):
        if seed != known:
            late_hunts[test] = f"known={known} did not find it, {seed} was the last seed tried"
            yield seed


def some_of(points: Sequence[Any], count: int) -> list[Any]:
    """Return evenly spread points, as many as `examples` says: which ones, the commit decides."""
    from tests.sim.ledger_seeds import first_seed

    count = min(len(points), examples(count))
    first = first_seed() % len(points)
    return [points[(first + number * len(points) // count) % len(points)] for number in range(count)]
