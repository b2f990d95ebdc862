"""Rules and dashboards use metrics and labels that some process really exports."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from rsm_spark.monitoring.command import FOLDER
from tests.unit.rsm_spark.monitoring.exported_metrics import all_labels, exported_labels, exported_pages
from tests.unit.rsm_spark.monitoring.expression_labels import WrongNameError, check_texts, labels_of

_PAGES = exported_labels()
_EXPORTED = dict(all_labels(_PAGES))
_RULES = [
    rule
    for group in yaml.safe_load((FOLDER / "prometheus" / "rsm-rules.yml").read_text())["groups"]
    for rule in group["rules"]
]
_BOARDS = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("grafana/*.json"))}
_LINES = [
    pytest.param(target, id=f"{name}: {panel['title']} {target['refId']}")
    for name, board in _BOARDS.items()
    for panel in board["panels"]
    for target in panel["targets"]
]


def _check_rule(rule: dict[str, Any]) -> None:
    told = rule["annotations"]
    check_texts(labels_of(rule["expr"], _EXPORTED), *told.values())


def test_processes_agree_about_the_labels_of_a_metric() -> None:
    found: dict[str, set[frozenset[str]]] = defaultdict(set)
    for name, labels in all_labels(_PAGES):
        found[name].add(labels)
    assert {name: labels for name, labels in found.items() if len(labels) > 1} == {}


def test_processes_agree_about_kind_and_text_of_a_metric() -> None:
    # A collector takes the metrics of all processes, and keeps one kind and one text of a name.
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for page in exported_pages().values():
        for word, name, rest in (line[2:].split(" ", 2) for line in page.splitlines() if line.startswith("# ")):
            found[word, name].add(rest)
    assert {said: texts for said, texts in found.items() if len(texts) > 1} == {}


@pytest.mark.parametrize("rule", _RULES, ids=[rule["alert"] for rule in _RULES])
def test_a_rule_asks_and_shows_what_is_exported(rule: dict[str, Any]) -> None:
    _check_rule(rule)


@pytest.mark.parametrize("line", _LINES)
def test_a_panel_asks_and_shows_what_is_exported(line: dict[str, Any]) -> None:
    check_texts(labels_of(line["expr"], _EXPORTED), line["legendFormat"], is_legend=True)


def test_a_dashboards_choices_are_labels_that_are_exported() -> None:
    queries = [one["query"] for board in _BOARDS.values() for one in board["templating"]["list"]]
    asked = [query for query in queries if query != "prometheus"]
    assert len(asked) == 2
    for query in asked:
        found = re.fullmatch(r"label_values\((\w+), (\w+)\)", query)
        assert found is not None, query
        assert found[2] in _EXPORTED[found[1]], query


@pytest.mark.parametrize(
    ("expression", "shown", "why"),
    [
        ("rsm_lag_second > 30", "", "nothing exports rsm_lag_second"),
        ("rsm_failed > 0 or rsm_unheard == 1", "", "nothing exports rsm_unheard"),
        ('rsm_role{rule="leader"} == 1', "", "no label rule"),
        ("max by (lag) (rsm_leader_epoch) > 1", "", "no label lag"),
        ("max without (replica) (rsm_leader_epoch) > 1", "", "no label replica"),
        ("rsm_queued_requests > 0 and on (instance, role) rsm_failed == 0", "", "no label role"),
        ("rsm_queued_requests > 0 and rsm_role == 1", "", "never match"),
        ("rsm_role * on (instance, log) group_left (zone) rsm_failed", "", "no label zone"),
        ("rsm_gateway_records_total / rsm_records_total", "", "never match"),
        ("histogram_quantile(0.99, sum by (instance) (rate(rsm_batch_records_bucket[5m])))", "", "no label le"),
        ("rsm_lag_seconds > 30", "{{ $labels.replica }} is behind.", "shows the label replica"),
        ("max by (log) (rsm_lag_seconds) > 30", "{{ $labels.instance }} is behind.", "shows the label instance"),
        ("max(rsm_lost_bookies) > 0", "{{ $labels.job }}", "shows the label job"),
        ("rsm_failed > 0 or rsm_clock_timestamp_seconds > 0", "{{ $labels.log }}", "shows the label log"),
        ("topk(3, rsm_failed)", "", "the function topk is not known"),
    ],
)
def test_a_planted_wrong_name_or_label_is_found(expression: str, shown: str, why: str) -> None:
    with pytest.raises(WrongNameError, match=why):
        _check_rule({"expr": expression, "annotations": {"summary": shown}})
