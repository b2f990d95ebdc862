"""`rsm task` and `rsm tenant`, as they are typed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.cli import task_wait
from rsm_spark.cli.main import main
from tests.unit.broker.client.served import ServedBroker


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedBroker]:
    with ServedBroker() as served:
        monkeypatch.setenv("RSM_BROKER_URL", served.url)
        yield served


class _Rsm:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.exit_code = 0
        self.error = ""

    def __call__(self, *arguments: object) -> str:
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as end:
            self.exit_code = int(end.code or 0)
        output, self.error = self._capsys.readouterr()
        return output

    def json(self, *arguments: object) -> list[Any]:
        return [json.loads(line) for line in self(*arguments, "--json").splitlines()]


@pytest.fixture
def rsm(capsys: pytest.CaptureFixture[str]) -> _Rsm:
    return _Rsm(capsys)


def test_a_task_is_submitted_shown_listed_explained_and_cancelled(served: ServedBroker, rsm: _Rsm) -> None:
    (submitted,) = rsm.json("task", "submit", "mail", "to: ada", "--priority", 3, "--resource", "gpu=2")
    task_id = submitted["task_id"]
    (shown,) = rsm.json("task", "get", task_id)
    assert (shown["payload"], shown["priority"], shown["resources"]) == ("to: ada", 3, {"gpu": 2})
    assert "mail" in rsm("task", "list", "--status", "waiting")
    assert "3 of 3 run (tenant-limit); 4 of its tenant's tasks are before it" in rsm("task", "explain", task_id)
    assert rsm("task", "cancel", task_id) == "1 cancelled\n"
    assert rsm("task", "wait", task_id) == f"{task_id}  cancelled: cancelled\n"
    assert rsm.exit_code == 1


def test_a_result_is_waited_for_and_written_as_it_is(served: ServedBroker, rsm: _Rsm) -> None:
    task_id = int(rsm("task", "submit", "mail"))
    served.run(served.broker.finish(task_id, result="done\n"))
    assert rsm("task", "get", task_id, "--result") == "done\n"
    assert rsm("task", "wait", task_id) == f"{task_id}  finished\n"
    assert rsm.exit_code == 0


def test_waiting_ends_at_its_limit_with_an_error_of_one_line(served: ServedBroker, rsm: _Rsm) -> None:
    task_id = int(rsm("task", "submit", "mail"))
    rsm("task", "wait", task_id, "--for", "0.05")
    assert rsm.exit_code == 6
    assert f"rsm: task {task_id} is waiting after" in rsm.error


def test_whoever_waits_hears_why_a_task_does_not_begin(
    served: ServedBroker, rsm: _Rsm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_wait, "_PATIENCE_S", 0.05)
    monkeypatch.setattr(task_wait, "_LOOK_S", 0.05)
    monkeypatch.setattr(task_wait, "_LATER_LOOK_S", 0.05)
    assert rsm("task", "submit", "mail", "--wait", "--for", "0.5") == ""
    assert rsm.exit_code == 6
    why = "3 of 3 run"
    assert f"is waiting: {why}" in rsm.error
    assert rsm.error.count("is waiting:") == 1  # The same reason is told once.
    assert re.search(rf"is waiting after 0\.5 s: {why}.*; it goes on", rsm.error)
    rsm("task", "submit", "mail", "--for", "1")
    assert "--for: says how long --wait waits" in rsm.error


def test_reasons_are_told_when_they_are_new_or_old_enough() -> None:
    reasons = task_wait.ReasonNotice(100.0)
    assert reasons.next_look_s(100.0) == 3.0
    assert not reasons.is_due("no worker", 102.0)
    assert reasons.is_due("no worker", 103.0)
    assert not reasons.is_due("no worker", 110.0)
    assert reasons.is_due("tenant paused", 111.0)
    assert not reasons.is_due("tenant paused", 160.0)
    assert reasons.is_due("tenant paused", 171.0)


def test_many_tasks_are_loaded_from_lines_of_json(served: ServedBroker, rsm: _Rsm, tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text("".join(f'{{"type": "mail", "payload": "{n}", "priority": {n}}}\n' for n in range(25)))
    assert rsm.json("task", "load", file, "--batch", 10) == [{"submitted": 25, "refused": 0}]
    assert rsm("task", "load", file, "--whole") == "25 tasks submitted\n"
    assert len(served.broker.tasks) == 50
    file.write_text('{"type": "mail"}\n{"tpye": "mail"}\n')
    rsm("task", "load", file)
    assert "line 2: a task has no field 'tpye'" in rsm.error


def test_a_tenants_policy_is_changed_field_by_field(served: ServedBroker, rsm: _Rsm) -> None:
    rsm("tenant", "set", "acme", "--weight", 3)
    rsm("tenant", "set", "acme", "--running-max", 50, "--type-max", "mail=10")
    (shown,) = rsm.json("tenant", "show", "acme")
    policy = shown["policy"]
    assert (policy["weight"], policy["running_max"], policy["running_max_by_type"]) == (3.0, 50, {"mail": 10})
    assert "acme" in rsm("tenant", "list")
    rsm("tenant", "set", "acme")
    assert "say what changes" in rsm.error


def test_a_tenant_is_paused_drained_and_resumed(served: ServedBroker, rsm: _Rsm) -> None:
    assert rsm("tenant", "pause", "acme", "--reason", "database") == "acme: paused\n"
    rsm("tenant", "drain", "acme", "--type", "mail")
    assert served.broker.holds["acme", "", ""]["is_paused"]
    assert served.broker.holds["acme", "mail", ""] == {
        "is_paused": False, "is_draining": True, "until_ms": 0, "reason": ""
    }  # fmt: skip
    rsm("tenant", "resume", "acme")
    assert ("acme", "", "") not in served.broker.holds


def test_what_a_tenant_typed_moves_no_cursor(served: ServedBroker, rsm: _Rsm) -> None:
    rsm("task", "submit", "\x1b[2Jmail")
    listed = rsm("task", "list")
    assert "\x1b" not in listed
    assert "\\x1b[2Jmail" in listed


def test_a_token_comes_from_a_file_and_is_not_shown(served: ServedBroker, rsm: _Rsm, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("geheim-12345678\n")
    rsm("task", "overview", "--token-file", token)
    assert served.server.asked[-1].headers["authorization"] == "Bearer geheim-12345678"
    rsm("task", "overview", "--token-file", tmp_path / "none")
    assert "cannot read the token" in rsm.error


@pytest.mark.parametrize(
    "command",
    ["submit", "get", "list", "explain", "overview", "workers", "deploy", "load", "wait", "cancel", "change", "replay"],
)
def test_every_command_of_tasks_shows_an_example(rsm: _Rsm, command: str) -> None:
    text = rsm("task", command, "--help")
    assert "Examples" in text
    assert "--json" in text


@pytest.mark.parametrize("command", ["set", "list", "show", "pause", "drain", "resume", "limit"])
def test_every_command_of_tenants_shows_an_example(rsm: _Rsm, command: str) -> None:
    text = rsm("tenant", command, "--help")
    assert "Examples" in text
    assert "--json" in text
