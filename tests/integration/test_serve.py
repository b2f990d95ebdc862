"""`rsm serve`: a state machine of a user's own, served by a command, called by another one, handed over."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from ledger.dev import DevCluster
from tests.integration.store_processes import stores
from tests.integration.test_store_cluster import run_cli

pytestmark = pytest.mark.asyncio
COUNTERS = ("rsm_spark", "serve", "examples.counter:Counters")


async def test_a_machine_of_ones_own_is_served_called_and_handed_over(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    with stores(uri, log, tmp_path) as replicas:
        for name in "ab":
            replicas.start(name, "--http-port", "0", "--audit-file", str(tmp_path / "audit"), command=COUNTERS)
        leader = await replicas.leader()
        code, (first,) = run_cli(uri, "call", "visits", "--log", log)
        assert (code, first["reply"]) == (0, "1")
        async with httpx.AsyncClient(base_url=f"http://{leader.ready['http_address']}") as http:
            assert (await http.get("/readyz")).status_code == 200
            assert (await http.get("/status")).json()["log"] == log
            assert "rsm_" in (await http.get("/metrics")).text
        leader.kill()
        replicas.gone(leader.replica_id)
        code, (said,) = run_cli(uri, "call", "visits", "--log", log)
        assert (code, said["reply"]) == (0, "2")
        assert said["revision"] > first["revision"]
        code, (asked,) = run_cli(uri, "call", "visits", "--log", log, "--query")
        assert (code, asked["reply"]) == (0, "2")
        assert asked["revision"] >= said["revision"]
        code, said = run_cli(uri, "call", "--list", "--log", log)
        assert (code, said) == (2, [])  # It has no typed commands.
        (left,) = replicas.alive.values()
        code, led = run_cli(uri, "log", "leaders", log)
        assert (code, led[0]["change"], led[0]["first_revision"]) == (0, "first", 1)
        assert [one["replica_id"] for one in led[-2:]] == [leader.replica_id, left.replica_id]
        assert (led[-1]["change"], led[-1]["last_revision"]) == ("another-replica", None)
        assert led[0]["before_ended"] is None
        assert led[-1]["before_ended"] in (
            "process-gone",
            "session-ended",
        )
        assert led[-2]["last_revision"] == led[-1]["first_revision"] - 1
        assert led[-2]["epoch"] < led[-1]["epoch"]
        assert led[-2]["since_ms"] <= led[-2]["last_entry_ms"]
        assert led[-2]["incarnation"] != led[-1]["incarnation"]
        assert run_cli(uri, "log", "leaders", log, "--limit", "1")[1] == led[-1:]
        code, (status,) = run_cli(uri, "status", "--log", log)
        assert code == 0
        assert left.replica_id in json.dumps(status)
        assert left.stop() == 0


async def test_a_second_process_of_a_replica_and_clients_of_other_machines_are_refused(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    with stores(uri, log, tmp_path) as replicas:
        first = replicas.start("a", command=COUNTERS)
        await replicas.leader()
        command = [sys.executable, "-m", *COUNTERS, "--log", log, "--metadata-uri", uri, "--replica-id", "a"]
        second = subprocess.run(
            [*command, "--data-dir", str(tmp_path / "other")],
            cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert second.returncode == 2, second.stderr
        assert f"replica 'a' runs already, in another process, at {first.address}" in second.stderr
        for words in (
            ("map", "put", "visits", "1"),
            ("map", "scan"),
            ("sql", "exec", "SELECT 1"),
            ("files", "ls", "/"),
        ):
            told = subprocess.run(
                [sys.executable, "-m", "rsm_spark", *words, "--log", log, "--metadata-uri", uri],
                capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
            assert (told.returncode, told.stdout) == (2, ""), words
            assert f"log {log} is of machine 'counters', not '{words[0]}'" in told.stderr
        code, (said,) = run_cli(uri, "call", "visits", "--log", log)
        assert (code, said["reply"]) == (0, "1")  # None of them has been applied as a command.
        first.kill()
        replicas.gone("a")
        replicas.start("a", command=COUNTERS)  # One that was killed does not stand in the way of its successor.
        code, (said,) = run_cli(uri, "call", "visits", "--log", log)
        assert (code, said["reply"]) == (0, "2")


async def test_commands_for_logs_tell_of_a_machine_of_ones_own_and_its_versions(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    with stores(uri, log, tmp_path) as replicas:
        for name, release in (("a", "Bank1"), ("b", "Bank2")):
            served = ("rsm_spark", "serve", f"tests.integration.rolled_bank:{release}", "--keep-version")
            replicas.start(name, "--http-port", "0", command=served)
        await replicas.leader()
        assert run_cli(uri, "call", "ann 1", "--log", log)[0] == 0
        code, (status,) = run_cli(uri, "status", "--log", log)
        assert (code, status["machine"], status["log_version"]) == (0, "bank", 1)
        assert {one["replica_id"]: one["machine_version"] for one in status["replicas"]} == {"a": 1, "b": 2}
        findings = run_cli(uri, "doctor")[1]
        assert [one["verdict"] for one in findings if one["what"] == f"log {log}"] == ["good", "note"]
        shown = subprocess.run(
            [sys.executable, "-m", "rsm_spark", "status", "--log", log, "--metadata-uri", uri],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        assert "the log is of version 1 of machine bank: a runs version 1, b runs version 2" in shown
        for order in ("raise-version", "info", "check-upgrade"):
            machine = ["tests.integration.rolled_bank:Bank2", "--log"] if order == "check-upgrade" else []
            assert run_cli(uri, "log", order, *machine, log)[0] == (1 if order == "raise-version" else 0), order
        assert replicas.gone("a").stop() == 0
        await replicas.leader()
        assert run_cli(uri, "log", "raise-version", log)[1][0]["version"] == 2
        assert run_cli(uri, "call", "ann 2 a@x", "--log", log)[0] == 0
        paid = [row["fields"] for row in run_cli(uri, "log", "cat", log)[1] if row["type"] == "paid"]
        assert paid == [
            {"account": "ann", "number": 1, "count": 1},
            {"account": "ann", "number": 2, "count": 2, "email": "a@x"},
        ]
        code, (status,) = run_cli(uri, "status", "--log", log)
        assert status["log_version"] == 2


@pytest.mark.parametrize(
    ("machine", "fault"),
    [
        ("examples.counter", "expected MODULE:NAME, for example bank:Bank"),
        ("examples.nowhere:Counters", "ModuleNotFoundError: No module named 'examples.nowhere'"),
        ("examples.counter:main", "this is no state machine, but a function"),
        ("needs:Machine", "TypeError: Machine.__init__() missing 1 required positional argument: 'size'\n"),
        ("broken:Machine", "RuntimeError: it cannot be made (broken.py:3)"),
        ("breaks:Machine", "ModuleNotFoundError: No module named 'nowhere' (breaks.py:2)"),
        ("ends:Machine", "SystemExit: 3 (ends.py:1)"),
    ],
)
async def test_what_is_no_machine_is_refused_in_one_line(machine: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        "class Machine:\n    def __init__(self):\n        raise RuntimeError('it cannot be made')\n"
    )
    (tmp_path / "needs.py").write_text("class Machine:\n    def __init__(self, size):\n        pass\n")
    (tmp_path / "breaks.py").write_text("# Needs what is not there.\nimport nowhere\n")
    (tmp_path / "ends.py").write_text("raise SystemExit(3)\n")
    ended = subprocess.run(
        [sys.executable, "-m", "rsm_spark", "serve", machine, "--log", "l", "--data-dir", str(tmp_path / "d")],
        capture_output=True, text=True, timeout=60, check=False,
        cwd=Path(__file__).parents[2] if machine.startswith("examples") else tmp_path,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (2, "")
    assert len(ended.stderr.splitlines()) == 1
    assert fault in ended.stderr
