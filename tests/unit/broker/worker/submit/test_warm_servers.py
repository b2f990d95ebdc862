"""Warm servers of a worker, with a script in the place of Spark: whose they are, how many, how they end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from broker.machine.policies import SPARK_SUBMIT
from broker.machine.worker_messages import AssignedRun
from broker.worker.code.folder import PoolFolder
from broker.worker.context import TaskError
from broker.worker.submit import warm_servers
from broker.worker.submit.warm_server import WarmServer, WarmSession
from broker.worker.submit.warm_servers import WarmServers
from tests.integration.worker_processes import is_alive
from tests.unit.broker.worker.listening import WAIT_S, run
from tests.unit.broker.worker.submit.spoken_server import SPOKEN

pytestmark = pytest.mark.asyncio


@asynccontextmanager
async def _servers(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, count_max: int = 2, idle_s: float = 600.0, script: str = SPOKEN
) -> AsyncIterator[WarmServers]:
    monkeypatch.setattr(warm_servers, "_MAIN", script)

    def environment(_folder: str) -> dict[str, str]:
        return {"PIDS": str(folder / "pids"), "PATH": os.environ["PATH"]}

    home = PoolFolder(None)
    made = WarmServers(
        "local", home, count_max=count_max, idle_s=idle_s, environment=environment, properties=lambda: "spark.x 1\n"
    )
    try:
        yield made
    finally:
        await made.close()
        home.remove()
    assert not any(is_alive(pid) for pid in _pids(folder))


def _pids(folder: Path) -> list[int]:
    file = folder / "pids"
    return [int(word) for word in file.read_text().split()] if file.exists() else []


def _of(tenant: str, number: int) -> AssignedRun:
    return msgspec.structs.replace(run(number, SPARK_SUBMIT), tenant=tenant)


async def _enter(made: WarmServers, one: AssignedRun, **conf: str) -> tuple[WarmServer, WarmSession]:
    async with asyncio.timeout(WAIT_S):
        return await made.enter(one, None, conf, lambda why: None)


def _pid(session: WarmSession) -> int:
    return int(session.session_id.split("-")[0])


async def test_a_tenant_has_one_server_and_no_other_tenant_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _servers(tmp_path, monkeypatch) as made:
        found = await asyncio.gather(*(_enter(made, _of(*who)) for who in (("a", 1), ("a", 2), ("b", 3))))
        assert (found[0][1].application_id, found[0][1].port) == ("local-1", 4711)
        assert found[0][1].environment == {
            "SPARK_REMOTE": "sc://localhost:1", "SPARK_CONNECT_AUTHENTICATE_TOKEN": "t",
        }  # fmt: skip
        assert found[0][0] is found[1][0] is not found[2][0]
        assert _pid(found[0][1]) == _pid(found[1][1]) != _pid(found[2][1])
        await made.leave(found[0][0], _of("a", 1))
        again, _ = await _enter(made, _of("a", 4))
        assert again is found[0][0], "it is kept for the next one"


async def test_who_finds_all_taken_waits_and_nobody_passes_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with _servers(tmp_path, monkeypatch, count_max=1) as made:
        first, _ = await _enter(made, _of("a", 1))
        waiting = asyncio.create_task(_enter(made, _of("b", 2)))
        behind = asyncio.create_task(_enter(made, _of("a", 3)))
        given_up = asyncio.create_task(_enter(made, _of("c", 4)))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.wait([given_up])
        assert not waiting.done()
        assert not behind.done()
        await made.leave(first, _of("a", 1))
        second, _ = await waiting
        assert second.tenant == "b"
        assert first.over.done(), "there is one at a time"
        await made.leave(second, _of("b", 2))
        third, _ = await behind
        assert third.tenant == "a"
        assert third is not first


async def test_one_that_nobody_has_ends_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with _servers(tmp_path, monkeypatch, idle_s=0.05) as made:
        server, session = await _enter(made, _of("a", 1))
        await made.leave(server, _of("a", 1))
        async with asyncio.timeout(WAIT_S):
            await asyncio.shield(server.over)
        assert not is_alive(_pid(session))


async def test_one_that_dies_is_told_to_who_has_it_and_another_one_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _servers(tmp_path, monkeypatch) as made:
        lost: asyncio.Queue[str] = asyncio.Queue()
        server, session = await made.enter(_of("a", 1), None, {}, lost.put_nowait)
        os.kill(_pid(session), signal.SIGKILL)
        async with asyncio.timeout(WAIT_S):
            why = await lost.get()
        assert why == "the warm server of this tenant has ended: signal 9\nstarts"
        await made.leave(server, _of("a", 1))
        other, _ = await _enter(made, _of("a", 2))
        assert other is not server


async def test_one_that_does_not_start_is_an_error_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "import sys; print('no such master', file=sys.stderr); sys.exit(3)"
    async with _servers(tmp_path, monkeypatch, script=script) as made:
        with pytest.raises(TaskError, match="exit code 3\nno such master"):
            await _enter(made, _of("a", 1))


async def test_a_setting_that_is_none_of_a_session_is_an_error_and_the_server_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _servers(tmp_path, monkeypatch) as made:
        with pytest.raises(TaskError, match="spark.bad is static"):
            await _enter(made, _of("a", 1), **{"spark.bad": "1"})
        server, _ = await _enter(made, _of("a", 2))
        assert len(_pids(tmp_path)) == 1
        assert not server.is_ending


async def test_one_that_does_not_close_a_session_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.worker.submit.warm_server._CLOSE_S", 0.2)
    script = SPOKEN.replace("else:", "elif not asked:")
    async with _servers(tmp_path, monkeypatch, script=script) as made:
        lost: list[str] = []
        server, session = await made.enter(_of("a", 1), None, {}, lost.append)
        await made.leave(server, _of("a", 1))
        assert not is_alive(_pid(session)), "what it computes is over when the run has left"
        assert lost == [], "who leaves has not lost it"


async def test_words_of_a_server_name_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = SPOKEN.replace('ui="http://host:4711"', 'ui=os.environ["PYSPARK_SUBMIT_ARGS"]')
    async with _servers(tmp_path, monkeypatch, script=script) as made:
        _, session = await _enter(made, _of("a", 1))
        said: Any = session.ui
        assert said.startswith("--master local --name 'rsm warm server' --properties-file /")
        assert said.endswith("/spark-submit.conf pyspark-shell")
        assert session.port == 0, "no address, no pages"
