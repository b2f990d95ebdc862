"""`--watch` on a terminal and elsewhere: looked at again, told in colour or plainly, ended by ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from ledger.dev import DevCluster
from tests.integration.store_processes import stores

_ROOT = Path(__file__).parents[2]


def _command(cluster: DevCluster, *words: str) -> list[str]:
    return [sys.executable, "-m", "rsm_spark", *words, "--metadata-uri", cluster.metadata_uri]


def test_documents_follow_each_other_until_ctrl_c(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        replicas.start("a")
        for words in (("cluster", "status"), ("status", "--log", unique_name)):
            _watch_documents(_command(cluster, *words, "--watch", "--json"))


def _watch_documents(command: Sequence[str]) -> None:
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=_ROOT) as watching:
        try:
            assert watching.stdout is not None
            first, second = (json.loads(watching.stdout.readline()) for _ in range(2))
            assert first.keys() == second.keys()
            watching.send_signal(signal.SIGINT)
            _, errors = watching.communicate(timeout=60)
            assert (watching.returncode, errors) == (0, b"")
        finally:
            watching.kill()


@pytest.mark.parametrize(("more", "is_coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_a_terminal_shows_the_newest_in_place(cluster: DevCluster, more: dict[str, str], is_coloured: bool) -> None:
    ours, theirs = pty.openpty()
    environment = {**{name: value for name, value in os.environ.items() if name != "NO_COLOR"}, "TERM": "xterm", **more}
    command = _command(cluster, "cluster", "status", "--watch")
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, cwd=_ROOT, env=environment) as watching:
        try:
            os.close(theirs)
            seen = b""
            while seen.count(b"\x1b[2J") < 2:
                seen += os.read(ours, 4_096)
            assert b"bookies:" in seen
            assert (b"\x1b[32mcopies: all of" in seen or b"\x1b[31mcopies:" in seen) == is_coloured
            watching.send_signal(signal.SIGINT)
            watching.wait(60)
            assert watching.returncode == 0
        finally:
            watching.kill()
            os.close(ours)


def test_what_cannot_be_seen_now_is_looked_at_again() -> None:
    uri = "zk+hierarchical://127.0.0.1:1/ledgers"
    command = [sys.executable, "-m", "rsm_spark", "cluster", "status", "--watch", "--metadata-uri", uri]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=_ROOT) as watching:
        try:
            assert watching.stderr is not None
            said = [watching.stderr.readline() for _ in range(2)]
            assert all(line.startswith(b"rsm: ") for line in said), said
            watching.send_signal(signal.SIGINT)
            watching.wait(60)
            assert watching.returncode == 0
        finally:
            watching.kill()
