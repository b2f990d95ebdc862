"""What docs/broker.md shows runs as it stands there."""

from __future__ import annotations

import base64
import json
import os
import re
import selectors
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger.dev import DevCluster

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "broker.md").read_text()
HANDLERS, CLIENT = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
COMMANDS, POLICY, DEPLOYED = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
DOCUMENTED_HTTP = "http://127.0.0.1:7364"
RSM = Path(sys.executable).with_name("rsm")  # The command, which unlike `python -m` does not look where it stands.
_READY_S = 60.0


def _commands(lines: str = COMMANDS) -> list[list[str]]:
    return [shlex.split(line.partition("#")[0]) for line in lines.splitlines()]


class Started:
    """A server of the page."""

    def __init__(
        self, arguments: list[str], folder: Path, environment: dict[str, str], *, errors: Path | None = None
    ) -> None:
        command = [str(RSM), *arguments[1:], "--json"]
        self._errors = (errors or folder) / f"{arguments[1]}.err"
        with self._errors.open("ab") as file:
            self.process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=file, text=True
            )

    def ready(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            assert selector.select(_READY_S), self._errors.read_text()
        line = self.process.stdout.readline()
        assert line, self._errors.read_text()
        return json.loads(line)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            assert self.process.wait(60) == 0, self._errors.read_text()
        finally:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="module")
def site(cluster: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, str], str]]:
    """Start broker and worker by the page's commands, on the shared bookies; return the environment and the URL."""
    folder = tmp_path_factory.mktemp("broker-docs")
    (folder / "handlers.py").write_text(HANDLERS)
    environment = os.environ | {"RSM_METADATA_URI": cluster.metadata_uri, "PYTHONPATH": str(ROOT)}
    _, broker, worker, *_ = _commands()
    assert (broker[:3], worker[:3]) == (["rsm", "broker", "run"], ["rsm", "worker", "run"])
    broker[broker.index("7364")] = "0"
    started = [Started(broker, folder, environment)]
    try:
        address = started[0].ready()["http_address"]
        started.append(Started(worker, folder, environment))
        started[1].ready()
        yield environment, f"http://{address}"
    finally:
        for server in reversed(started):
            server.stop()


def test_the_commands_submit_a_task_and_list_it(site: tuple[dict[str, str], str]) -> None:
    environment, _ = site
    for command in _commands()[3:]:
        done = subprocess.run(
            [sys.executable, "-m", "rsm_spark", *command[1:]],
            env=environment, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert "greet" in done.stdout


def test_a_policy_is_set_by_the_command_of_the_page(site: tuple[dict[str, str], str]) -> None:
    environment, _ = site
    raised = [sys.executable, "-m", "rsm_spark", "log", "raise-format", "broker"]  # A log without a key begins below.
    (policy,) = _commands(POLICY)
    shown = [sys.executable, "-m", "rsm_spark", "tenant", "show", "acme", "--json"]
    said = [
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout
        for command in (raised, [str(RSM), *policy[1:]], shown)
    ]
    assert '"mail*"' in said[-1]
    assert '"spark_sql"' in said[-1]


def test_code_is_deployed_and_called_by_the_commands_of_the_page(
    site: tuple[dict[str, str], str], tmp_path: Path
) -> None:
    environment, _ = site
    (tmp_path / "handlers.py").write_text(HANDLERS)
    said = [
        subprocess.run(
            [str(RSM), *command[1:]],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )  # fmt: skip
        for command in _commands(DEPLOYED)
    ]
    assert [one.returncode for one in said] == [0, 0], said
    waited = subprocess.run(
        [str(RSM), "task", "wait", said[1].stdout.strip(), "--tenant", "acme", "--json"],
        env=environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert waited.returncode == 0, waited
    assert "hello Ada" in waited.stdout or base64.b64encode(b"hello Ada")[:9].decode() in waited.stdout, waited.stdout


def test_the_client_of_the_page_gets_its_results(site: tuple[dict[str, str], str]) -> None:
    environment, url = site
    assert DOCUMENTED_HTTP in CLIENT
    done = subprocess.run(
        [sys.executable, "-c", CLIENT.replace(DOCUMENTED_HTTP, url)],
        env=environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "b'hello Ada, attempt 1'",
        "[b'hello Bob, attempt 1', b'hello Eve, attempt 1']",
        "b'hello one, attempt 1' b'hello two, attempt 1'",
        "b'hello future, attempt 1'",
    ]


def test_every_command_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`rsm ([a-z]+ [a-z-]+)", TEXT))
    assert len(named) > 5
    for command in sorted(named):
        done = subprocess.run(
            [sys.executable, "-m", "rsm_spark", *command.split(), "--help"],
            capture_output=True, text=True, check=False, timeout=60, cwd=ROOT,
        )  # fmt: skip
        assert done.returncode == 0, command
