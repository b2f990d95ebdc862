"""Runs of applications, with a script in the place of spark-submit: what it is given, and how it ends."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from broker.machine.policies import SPARK_SUBMIT
from broker.machine.statuses import Outcome, TaskStatus
from broker.worker.code.folder import PoolFolder
from broker.worker.core.effects import StopReason
from broker.worker.submit.applications import SparkApplications
from broker.worker.submit.settings import SubmitSettings
from ledger.errors import UsageError
from tests.integration.worker_processes import is_alive
from tests.unit.broker.worker.listening import Listening, run
from tests.unit.broker.worker.submit.spoken_server import SPOKEN

pytestmark = pytest.mark.asyncio

_SAYS = """#!/bin/sh
echo "$@"
cat "$SPARK_LOCAL_DIRS/spark-submit.conf" 2>/dev/null
"""
_HANGS = """#!/bin/sh
setsid sh -c 'echo $$ >> {pids}; exec sleep 600' &
echo $$ >> {pids}
echo "26/11/27 18:00:00 INFO ClientEndpoint: Driver successfully submitted as driver-20261127180000-0003" >&2
exec sleep 600
"""
_ENDS = """#!/bin/sh
echo "$@" > {killed}
"""


def _home(folder: Path, script: str, *, kill: str = "") -> Path:
    (folder / "bin").mkdir(parents=True)
    for name, text in (("spark-submit", script), ("spark-class", kill)):
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    return folder


@asynccontextmanager
async def _applications(folder: Path, **settings: Any) -> AsyncIterator[tuple[SparkApplications, Listening]]:
    (folder / "a.py").write_text("")
    (folder / "a.jar").write_text("")
    said = SubmitSettings(
        **{"master": "local", "applications": (str(folder),), "spark_home": folder / "home", **settings}
    )
    said.check()
    made, heard = SparkApplications(said), Listening()
    try:
        yield made, heard
    finally:
        await made.close()


def _payload(folder: Path, name: str = "a.py", **more: Any) -> bytes:
    return json.dumps({"application": f"{folder}/{name}", **more}).encode()


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)


async def _pids(file: Path) -> list[int]:
    await _until(lambda: file.exists() and len(file.read_text().split()) >= 2)
    return [int(word) for word in file.read_text().split()]


async def test_spark_submit_is_given_what_the_worker_and_the_payload_say(tmp_path: Path) -> None:
    _home(tmp_path / "home", _SAYS)
    (tmp_path / "spark.conf").write_text("spark.executor.memory 1g\n")
    async with _applications(tmp_path, properties=tmp_path / "spark.conf") as (made, heard):
        made.run(run(1, SPARK_SUBMIT, _payload(tmp_path, args=["--x", "y z"])), heard)
        end = await heard.end_of(1)
    result = msgspec.json.decode(end.result)
    words, settings = result["output"].splitlines()
    assert words.startswith("--master local --deploy-mode client --name rsm task 1001 --properties-file /")
    assert words.endswith(f"--conf spark.rsm.task=1001 --conf spark.rsm.assignment=1 {tmp_path}/a.py --x y z")
    assert settings == "spark.executor.memory 1g"


@pytest.mark.parametrize(
    ("payload", "outcome", "said"),
    [
        (b"no", Outcome.FAILED, "the payload is none"),
        (b"", Outcome.REFUSED, "names no application"),
        (b'{"application": "/etc/passwd"}', Outcome.REFUSED, "in none of the places"),
    ],
)
async def test_what_cannot_be_submitted_ends_in_words(
    tmp_path: Path, payload: bytes, outcome: Outcome, said: str
) -> None:
    _home(tmp_path / "home", _SAYS)
    async with _applications(tmp_path) as (made, heard):
        made.run(run(1, SPARK_SUBMIT, payload), heard)
        end = await heard.end_of(1)
    assert end.outcome == outcome
    assert said in end.error


async def test_a_failed_one_tells_how_and_the_end_of_its_log(tmp_path: Path) -> None:
    _home(tmp_path / "home", "#!/bin/sh\necho it is bad >&2\nexit 3\n")
    async with _applications(tmp_path) as (made, heard):
        made.run(run(1, SPARK_SUBMIT, _payload(tmp_path)), heard)
        assert (await heard.end_of(1)).error == "SparkSubmit: exit code 3\nit is bad"


@pytest.mark.parametrize("how", ["cancel", "time", "own time", "close"])
async def test_all_that_it_has_started_ends_with_its_run(tmp_path: Path, how: str) -> None:
    _home(tmp_path / "home", _HANGS.format(pids=tmp_path / "pids"))
    settings = {"time_s": 5.0} if how == "own time" else {}
    async with _applications(tmp_path, **settings) as (made, heard):
        made.run(run(1, SPARK_SUBMIT, _payload(tmp_path), timeout_ms=5000 if how == "time" else 0), heard)
        pids = await _pids(tmp_path / "pids")
        if how == "cancel":
            assert made.stop(1, StopReason.CANCELLED)
        if how != "close":
            end = await heard.end_of(1)
            expected = Outcome.CANCELLED if how == "cancel" else Outcome.TIMED_OUT
            assert end.outcome == expected
            assert not any(is_alive(pid) for pid in pids), "its end is told when it is gone"
        assert not made.stop(2, StopReason.CANCELLED)
    assert not any(is_alive(pid) for pid in pids)


async def test_a_submission_to_a_cluster_is_ended_there_first(tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    _home(tmp_path / "home", _HANGS.format(pids=tmp_path / "pids"), kill=_ENDS.format(killed=killed))
    async with _applications(tmp_path, master="spark://h:7077", deploy_mode="cluster") as (made, heard):
        made.run(run(2, SPARK_SUBMIT, _payload(tmp_path)), heard)
        assert "runs no drivers in Python" in (await heard.end_of(2)).error
        made.run(run(1, SPARK_SUBMIT, _payload(tmp_path, "a.jar#x.Y")), heard)
        pids = await _pids(tmp_path / "pids")
        await heard.until(lambda: "driver-20261127180000-0003" in str(heard.progress.get(1)))
        made.stop(1, StopReason.CANCELLED)
        assert (await heard.end_of(1)).status == TaskStatus.CANCELLED
    assert killed.read_text().split() == [
        "org.apache.spark.deploy.Client", "kill", "spark://h:7077", "driver-20261127180000-0003",
    ]  # fmt: skip
    assert not any(is_alive(pid) for pid in pids)


@pytest.mark.parametrize("state", ["FINISHED", "FAILED", ""])
async def test_the_launcher_of_a_cluster_ends_well_and_its_words_count(tmp_path: Path, state: str) -> None:
    line = f"26/11/27 18:00:00 INFO ClientEndpoint: State of driver driver-20261127180000-0003 is {state}, exiting\\n"
    _home(tmp_path / "home", f"#!/bin/sh\nprintf '{line if state else ''}' >&2\n")
    async with _applications(tmp_path, master="spark://h:7077", deploy_mode="cluster") as (made, heard):
        made.run(run(1, SPARK_SUBMIT, _payload(tmp_path, "a.jar#x.Y")), heard)
        end = await heard.end_of(1)
    assert end.status == (TaskStatus.FINISHED if state == "FINISHED" else TaskStatus.ERROR)
    assert (state or "nobody said") in end.error + "FINISHED"


async def test_a_killed_keeper_takes_what_it_keeps_along(tmp_path: Path) -> None:
    _home(
        tmp_path / "home",
        "#!/bin/sh\necho $PPID $$ > {0}.new; mv {0}.new {0}\nexec sleep 600\n".format(tmp_path / "pids"),
    )
    async with _applications(tmp_path) as (made, heard):
        made.run(run(1, SPARK_SUBMIT, _payload(tmp_path)), heard)
        keeper, kept = await _pids(tmp_path / "pids")
        os.kill(keeper, signal.SIGKILL)
        end = await heard.end_of(1)
        assert "SparkSubmit" in end.error
        while is_alive(kept):
            await asyncio.sleep(0.02)


def _work_until_killed(folder: Path) -> None:
    """Be a worker with a driver on a cluster."""

    async def work() -> None:
        async with _applications(folder, master="spark://h:7077", deploy_mode="cluster") as (made, heard):
            made.run(run(1, SPARK_SUBMIT, _payload(folder, "a.jar#x.Y")), heard)
            await heard.until(lambda: "driver-20261127180000-0003" in str(heard.progress.get(1)))
            (folder / "known").touch()
            await asyncio.sleep(600)

    asyncio.run(work())


async def test_a_folder_of_a_killed_worker_stays_for_its_keeper_and_goes_with_the_next_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place := tmp_path / "tmp").mkdir()
    ending, may_end, killed = (tmp_path / name for name in ("ending", "may_end", "killed"))
    waits = f"#!/bin/sh\ntouch {ending}\nuntil [ -e {may_end} ]; do sleep 0.05; done\npwd > {killed}\n"
    _home(tmp_path / "home", _HANGS.format(pids=tmp_path / "pids"), kill=waits)
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr("tempfile.tempdir", str(place))
    worker = multiprocessing.get_context("spawn").Process(target=_work_until_killed, args=(tmp_path,))
    worker.start()
    await _until((tmp_path / "known").exists)
    (left,) = place.glob("rsm-code-*")
    worker.kill()
    worker.join()
    await _until(ending.exists)
    _home(tmp_path / "next" / "home", _SAYS)
    async with _applications(tmp_path / "next") as (made, heard):
        made.run(run(1, SPARK_SUBMIT, _payload(tmp_path / "next")), heard)
        await heard.end_of(1)
        assert left.exists(), "its keeper ends a driver there"
    may_end.touch()
    await _until(lambda: killed.exists() and killed.read_text().startswith(str(left)))

    def is_swept() -> bool:
        home = PoolFolder(place)
        home.make()
        home.remove()
        return not left.exists()

    await _until(is_swept)
    assert not list(place.glob("rsm-*"))


async def test_output_without_end_takes_no_memory_and_is_cut(tmp_path: Path) -> None:
    _home(tmp_path / "home", "#!/bin/sh\nhead -c 20000000 /dev/zero | tr '\\0' x\nhead -c 20000000 /dev/zero >&2\n")
    async with _applications(tmp_path) as (made, heard):
        made.run(run(1, SPARK_SUBMIT, _payload(tmp_path)), heard)
        assert len((await heard.end_of(1)).result) < 200_000


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"deploy_mode": "both"}, "use one of client, cluster"),
        ({"deploy_mode": "cluster"}, "only where there is one"),
        ({"deploy_mode": "connect", "applications": ("/srv",)}, "have a driver of their own"),
        ({"spark_home": Path("/nowhere")}, "there is no bin/spark-submit in /nowhere"),
        ({"properties": Path("/nowhere")}, "there is no such file"),
    ],
)
async def test_settings_that_make_no_sense_are_told_before_anything_runs(
    tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    _home(tmp_path / "home", _SAYS)
    with pytest.raises(UsageError, match=said):
        SubmitSettings(**{"master": "local", "spark_home": tmp_path / "home", **settings}).check()


_TELLS = """
import os
print(*(os.environ[name] for name in ("SPARK_REMOTE", "SPARK_CONNECT_AUTHENTICATE_TOKEN", "RSM_TASK_ID")))
"""


@asynccontextmanager
async def _connected(
    folder: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> AsyncIterator[tuple[SparkApplications, Listening]]:
    """Run applications with sessions of what a script is."""
    _home(folder / "home", _SAYS)
    monkeypatch.setenv("PIDS", str(folder / "pids"))
    monkeypatch.setattr("broker.worker.submit.warm_servers._MAIN", script)
    settings: dict[str, Any] = {"deploy_mode": "connect", "applications": (), "environment": ("PIDS",)}
    async with _applications(folder, **settings) as found:
        (folder / "a.py").write_text(_TELLS)
        (folder / "hangs.py").write_text(f"import os, time\nopen({str(folder / 'hangs')!r}, 'w')\ntime.sleep(600)\n")
        yield found


async def test_a_program_has_the_session_that_its_tenants_server_has_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _connected(tmp_path, monkeypatch, SPOKEN) as (made, heard):
        made.run_deployed(run(1, SPARK_SUBMIT, code="c", mode="a.py"), heard, str(tmp_path), None)
        result = msgspec.json.decode((await heard.end_of(1)).result)
        (server,) = map(int, (tmp_path / "pids").read_text().split())
        assert result["output"] == "sc://localhost:1 t 1001\n"
        assert (result["application_id"], result["session_id"]) == ("local-1", f"{server}-1")
        made.run_deployed(run(2, SPARK_SUBMIT, code="c", mode="a.jar#x.Y"), heard, str(tmp_path), None)
        made.run(run(3, SPARK_SUBMIT, _payload(tmp_path)), heard)
        assert "a warm server runs programs in Python" in (await heard.end_of(2)).error
        assert (await heard.end_of(3)).outcome == Outcome.REFUSED

        made.run_deployed(run(4, SPARK_SUBMIT, code="c", mode="hangs.py"), heard, str(tmp_path), None)
        await _until((tmp_path / "hangs").exists)
        os.kill(server, signal.SIGKILL)
        end = await heard.end_of(4)
        assert end.status == TaskStatus.ERROR
        assert "the warm server of this tenant has ended: signal 9" in end.error


@pytest.mark.parametrize("how", ["cancel", "time"])
async def test_a_run_that_waits_for_its_server_can_be_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    async with _connected(tmp_path, monkeypatch, "import time; time.sleep(600)") as (made, heard):
        timeout_ms = 300 if how == "time" else 0
        one = run(1, SPARK_SUBMIT, code="c", mode="a.py", timeout_ms=timeout_ms, heartbeat_ms=60)
        made.run_deployed(one, heard, str(tmp_path), None)
        await heard.until(lambda: 1 in heard.progress)
        if how == "cancel":
            made.stop(1, StopReason.CANCELLED)
        expected = Outcome.CANCELLED if how == "cancel" else Outcome.TIMED_OUT
        assert (await heard.end_of(1)).outcome == expected
