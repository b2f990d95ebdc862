"""`rsm broker run` as a process: what it says, what it answers, how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from ledger.dev import DevCluster
from tests.integration.store_processes import stores

_ROOT = Path(__file__).parents[2]


def asked(
    client: httpx.Client, method: str, path: str, is_wanted: Callable[[httpx.Response], bool], **rest: Any
) -> httpx.Response:
    """Ask until the answer is the wanted one: the broker may not lead yet."""
    deadline = time.monotonic() + 60
    while not is_wanted(answer := client.request(method, path, **rest)):
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.05)
    return answer


def test_a_broker_says_when_it_is_ready_answers_probes_and_ends_when_it_is_told_to(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as brokers:
        broker = brokers.start("a", "--bookies", "3/3/2", command=("broker", "run"))
        assert {"ready": True, "log": unique_name, "replica_id": "a"}.items() <= broker.ready.items()
        site = f"http://{broker.ready['http_address']}"
        with httpx.Client(base_url=site, timeout=60) as client:
            assert client.get("/healthz").status_code == 200
            asked(client, "GET", "/readyz", lambda answer: answer.text == "ready: leads\n")
            assert client.post("/api/v1/tasks", json={"type": "mail"}).status_code == 201
            metrics = client.get("/metrics").text
            assert f'rsm_broker_tasks{{log="{unique_name}",status="waiting"}} 1.0' in metrics
            assert f'rsm_role{{log="{unique_name}",role="leader"}} 1.0' in metrics
        command = [sys.executable, "-m", "rsm_spark", "status", "--log", unique_name, "--json"]
        shown = subprocess.run(
            [*command, "--metadata-uri", cluster.metadata_uri], cwd=_ROOT, capture_output=True, check=True, timeout=60
        )
        assert f'"http_address":"{broker.ready["http_address"]}"' in shown.stdout.decode().replace(" ", "")
        assert broker.stop() == 0
        brokers.gone("a")


def test_a_folder_that_another_broker_has_is_refused_in_one_line(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as brokers:
        brokers.start("a", "--bookies", "3/3/2", "--no-http", command=("broker", "run"))
        command = [sys.executable, "-m", "rsm_spark", "broker", "run", "--log", unique_name, "--metadata-uri"]
        second = subprocess.run(
            [*command, cluster.metadata_uri, "--data-dir", str(tmp_path / "a")],
            cwd=_ROOT, capture_output=True, check=False, text=True, timeout=60,
        )  # fmt: skip
        assert second.returncode == 2
        assert len(second.stderr.splitlines()) == 1
        assert str(tmp_path / "a") in second.stderr


def test_a_mapper_of_the_working_directory_sets_the_priority_of_tasks(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    (tmp_path / "ranks.py").write_text(
        "from broker.machine.mapping import Mapped\n"
        "def of_task(tenant, type, task): return Mapped(priority=9, group=4)\n"
    )
    command = [sys.executable, "-m", "broker", "run", "--log", unique_name, "--metadata-uri", cluster.metadata_uri]
    command += ["--data-dir", str(tmp_path / "m"), "--bookies", "3/3/2", "--mapper", "ranks:of_task", "--json"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) as broker:
        try:
            assert broker.stdout is not None
            ready = json.loads(broker.stdout.readline())
            with httpx.Client(base_url=f"http://{ready['http_address']}", timeout=60) as client:
                body = {"type": "mail", "priority": 1}
                task = asked(client, "POST", "/api/v1/tasks", lambda answer: answer.status_code == 201, json=body)
                shown = client.get(f"/api/v1/tasks/{task.json()['task_id']}").json()
                assert (shown["priority"], shown["group"]) == (9, 4)
        finally:
            broker.terminate()
    assert broker.returncode == 0
