"""Histories of SQL transactions while replicas are cut off from ZooKeeper, bookies, or all others, one way and both."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from rsm_spark.testing.list_append import AppendOutcome, check_lists
from tests.integration.cut_stores import LOG, NAMES, cut, three_cut_stores
from tests.integration.recorded_callers import CallersProcess
from tests.integration.sql_callers import SqlCallersArguments, SqlCallersHistory, check_totals
from tests.integration.store_faults import PAUSE_S
from tests.unit.rsm_spark.sql.sql_pair import contents

SQL = ("rsm_spark", "sql", "serve")


CUTS = tuple(itertools.product(("leader|zookeeper", "leader|bookies", "follower|all"), ("both", "in", "out")))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("count", [4, pytest.param(len(CUTS), marks=pytest.mark.slow)])
def test_histories_are_strictly_serializable_when_replicas_are_cut_off_one_way_and_both(
    tmp_path: Path, count: int
) -> None:
    """So many of nine cuts, each for longer than a session with ZooKeeper; the first one ends a leadership."""
    rng = random.Random(21)
    first = ("leader|zookeeper", "both")
    cuts = [first, *rng.sample([one for one in CUTS if one != first], count - 1)]
    path = tmp_path / "history.json"
    with three_cut_stores(tmp_path, "--snapshot-s", "5", command=SQL) as stores:
        networks = stores.networks
        callers = CallersProcess(
            "tests.integration.sql_callers",
            SqlCallersArguments(networks.metadata_uri, LOG, str(path), 21),
            tmp_path / "callers.log",
            prefix=networks.inside("client"),
            environment=stores.environment,
        )
        led: set[str] = set()
        try:
            callers.wait_for_more(30)
            for pair, way in cuts:
                whom, _, others = pair.partition("|")
                leader = stores.leader()
                led.add(leader)
                host = leader if whom == "leader" else rng.choice([name for name in NAMES if name != leader])
                everybody = [other for other in networks.hosts if other != host]
                cut(
                    networks,
                    host,
                    {"zookeeper": ["zookeeper"], "bookies": networks.bookies}.get(others, everybody),
                    way,
                )
                time.sleep(PAUSE_S)  # the length of the fault
                if whom == "follower":
                    callers.wait_for_more(30)
                networks.heal()
                callers.wait_for_more(30)
            led.add(stores.leader())
            callers.finish()
        finally:
            callers.kill()
        stores.agree()
    seen = msgspec.json.decode(path.read_bytes(), type=SqlCallersHistory)
    history = seen.appended()
    fates = Counter(one.fate for one in history)
    print(dict(fates), "led by", led)
    assert len(led) > 1, "no cut ended a leadership"
    assert fates[AppendOutcome.OK] > 30 * len(cuts)
    check_totals(seen.last, seen.totals)
    assert check_lists(history) == []
    files = [contents(tmp_path / name / "tables.db") for name in NAMES]
    assert files[0] == files[1] == files[2]
    assert sum(cents for _, _, cents in files[0]["account"]) == seen.last[0]
