"""A server whose ZooKeeper client loses its connection thread, as a process: it goes on, and registers again."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.integration.bookie_process import Bookie

_LIMIT_S = 60.0
_PLANT = """\
import os
import kazoo.handlers.threading as threading_handler

_select = threading_handler.selector_select


def _planted(*arguments, **options):
    try:
        os.unlink({trigger!r})
    except FileNotFoundError:
        return _select(*arguments, **options)
    raise ValueError("planted")


threading_handler.selector_select = _planted
"""


def test_a_bookie_outlives_the_thread_that_speaks_with_zookeeper(
    zookeeper: str, unique_name: str, tmp_path: Path
) -> None:
    trigger, log = tmp_path / "trigger", tmp_path / "bookie.log"
    planted = tmp_path / "planted"
    planted.mkdir()
    (planted / "sitecustomize.py").write_text(_PLANT.format(trigger=str(trigger)))
    search = os.pathsep.join([str(planted), *filter(None, [os.environ.get("PYTHONPATH")])])
    bookie = Bookie(zookeeper, tmp_path / "bookie", root=f"/{unique_name}")
    asking = KazooClient(zookeeper)
    asking.start()
    with log.open("wb") as errors:
        process = subprocess.Popen(
            bookie.command(), stdout=subprocess.PIPE, stderr=errors, env={**os.environ, "PYTHONPATH": search}
        )
    try:
        _wait_for_a_line(process, log)
        before = _owner(asking, unique_name, bookie)
        assert before
        trigger.touch()  # The thread meets it when it next wakes up, for a ping at the latest.
        deadline = time.monotonic() + _LIMIT_S
        while _owner(asking, unique_name, bookie) in (None, before):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait(60)
        assert process.stdout is not None
        process.stdout.close()
        asking.stop()
        asking.close()
    said = log.read_text()
    assert "a thread of its client has ended (ValueError: planted)" in said
    assert "never retrieved" not in said


def _wait_for_a_line(process: subprocess.Popen[bytes], log: Path) -> None:
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        if not selector.select(_LIMIT_S):
            pytest.fail(f"it is not ready: {log.read_text()}")
    assert process.stdout.readline(), log.read_text()


def _owner(asking: KazooClient, root: str, bookie: Bookie) -> int | None:
    """Return the session that the bookie is registered by; None if it is not registered."""
    stat = asking.exists(f"/{root}/available/127.0.0.1:{bookie.port}")
    return None if stat is None else int(stat.ephemeralOwner)
