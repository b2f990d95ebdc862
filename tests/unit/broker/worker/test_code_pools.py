"""Code pools with real processes; the broker's end of a download is played."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.machine.statuses import Outcome, TaskStatus
from broker.worker.code.folder import PoolFolder
from broker.worker.core.effects import StopReason
from broker.worker.executors.children import ChildLimits
from broker.worker.jail.jails import JailSettings, machine_jail
from tests.unit.broker.worker.archives import archive, pool
from tests.unit.broker.worker.listening import run
from tests.unit.broker.worker.served_code import Served, handlers, pools


@pytest.mark.asyncio
async def test_two_versions_of_a_module_run_side_by_side(tmp_path: Path) -> None:
    served = Served()
    served.archives = {"one": handlers("1"), "two": handlers("2")}
    async with pools(served, tmp_path) as (made, heard):
        made.run(
            [run(number, "x", b"!", code=code, mode="handlers:version") for number, code in enumerate(served.archives)]
        )
        assert (await heard.end_of(0)).result == b"1!"
        assert (await heard.end_of(1)).result == b"2!"
        made.run([run(2, "x", b"?", code="one", mode="handlers:version")])
        assert (await heard.end_of(2)).result == b"1?"
        assert made.fetched_count == 2


@pytest.mark.asyncio
async def test_code_runs_in_a_private_folder_without_the_workers_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RSM_STORE__TOKEN_FILE", "/secret")
    served = Served()
    served.archives = {"one": handlers("1")}
    async with pools(served, tmp_path) as (made, heard):
        made.run([run(1, "x", code="one", mode="handlers:where")])
        home, file, variables = (await heard.end_of(1)).result.decode().split("|")
        assert variables == "[]"
        (folder,) = tmp_path.iterdir()
        assert folder.stat().st_mode & 0o066 == 0  # In a jail without namespaces others pass, and read nothing.
        if machine_jail(JailSettings().uid_base).support.has_namespaces:
            assert (home, file) == ("/pool/scratch", "/pool/code/handlers.py")
        else:
            assert all(Path(place).is_relative_to(folder) for place in (home, file))
    assert not list(tmp_path.iterdir())


@pytest.mark.asyncio
async def test_a_download_goes_on_where_it_was_broken_off(tmp_path: Path) -> None:
    served = Served()
    served.archives = {"one": handlers("1")}
    served.break_after = 1
    async with pools(served, tmp_path) as (made, heard):
        made.run([run(1, "x", code="one", mode="handlers:version")])
        assert (await heard.end_of(1)).status == TaskStatus.FINISHED
        assert [offset for _, offset in served.asked][:3] == [0, 100, 200]


@pytest.mark.asyncio
async def test_what_was_downloaded_has_to_be_what_the_broker_says(tmp_path: Path) -> None:
    served = Served()
    served.archives = {"one": handlers("1")}
    served.said_sha256 = "0" * 64
    async with pools(served, tmp_path) as (made, heard):
        made.run([run(1, "x", code="one", mode="handlers:version")])
        end = await heard.end_of(1)
        assert (end.status, end.outcome) == (TaskStatus.ERROR, Outcome.REFUSED)
        assert "SHA-256" in end.error


@pytest.mark.asyncio
async def test_code_that_is_gone_or_bad_is_refused_and_tried_anew(tmp_path: Path) -> None:
    served = Served()
    served.archives = {"bad": archive({"../x.py": ""})}
    async with pools(served, tmp_path) as (made, heard):
        made.run([run(1, "x", code="gone", mode="m:f"), run(2, "x", code="bad", mode="m:f")])
        assert "knows no code 'gone'" in (await heard.end_of(1)).error
        assert "empty parts" in (await heard.end_of(2)).error
        served.archives["gone"] = handlers("1")
        made.run([run(3, "x", code="gone", mode="handlers:version")])
        assert (await heard.end_of(3)).result == b"1"


@pytest.mark.asyncio
async def test_code_that_cannot_be_reached_fails_its_runs_in_time(tmp_path: Path) -> None:
    served = Served()
    served.archives = {"one": handlers("1")}
    served.break_after = 0
    async with pools(served, tmp_path, fetch_s=0.5) as (made, heard):
        made.run([run(1, "x", code="one", mode="handlers:version")])
        end = await heard.end_of(1)
        assert end.outcome == Outcome.FAILED
        assert end.error.startswith("CodeUnavailable")


@pytest.mark.asyncio
async def test_another_archive_by_the_same_name_is_noticed(tmp_path: Path) -> None:
    served = Served()
    served.archives = {"one": handlers("1")}
    async with pools(served, tmp_path, check_s=0.0) as (made, heard):
        made.run([run(1, "x", code="one", mode="handlers:version")])
        assert (await heard.end_of(1)).result == b"1"
        served.archives = {"one": handlers("22")}
        made.run([run(2, "x", code="one", mode="handlers:version")])
        assert (await heard.end_of(2)).result == b"22"


@pytest.mark.asyncio
async def test_a_pool_that_nothing_uses_is_removed(tmp_path: Path) -> None:
    served = Served()
    served.archives = {"one": handlers("1")}
    async with pools(served, tmp_path, keep_s=0.1) as (made, heard):
        made.run([run(1, "x", code="one", mode="handlers:version")])
        await heard.end_of(1)
        async with asyncio.timeout(60):
            while made.codes or any(tmp_path.glob("*/1")):
                await asyncio.sleep(0.01)


_MODULES = {
    "hangs": ("import time\ntime.sleep(600)", "hangs:f", "ImportTimeout: importing the code"),
    "exits": (
        "import os\nos._exit(3)",
        "exits:f",
        "ProcessDied: the process that ran it ended by itself with exit code 3",
    ),
    "leaves": ("import sys\nsys.exit('bye')", "leaves:f", "SystemExit: bye"),
    "raises": ("raise ValueError('no')", "raises:f", "ValueError: no"),
    "misspelt": ("def f(:", "misspelt:f", "SyntaxError"),
    "lacks": ("import not_there_at_all", "lacks:f", "ModuleNotFoundError: No module named 'not_there_at_all'"),
    "forks": ("import os, time\nif os.fork() == 0:\n    time.sleep(600)\ndef f(c, p): return 'ok'", "forks:f", ""),
    "plain": ("X = 1", "plain:f", "Refused: mode 'plain:f': plain in code bad has no function 'f'"),
    "undeclared": ("", "nowhere:f", "Refused: mode 'nowhere:f' is not declared by code 'bad'; it declares undeclared"),
    "modeless": ("", "", "Refused: mode '' is not declared by code 'bad'"),
}


@pytest.mark.parametrize("name", _MODULES)
@pytest.mark.asyncio
async def test_an_import_that_goes_wrong_is_one_failed_task_with_a_clear_error(name: str, tmp_path: Path) -> None:
    source, mode, error = _MODULES[name]
    served = Served()
    served.archives = {"bad": pool({f"{name}.py": source}, f"{name}:f"), "good": handlers("1")}
    async with pools(served, tmp_path, children=ChildLimits(load_s=2.0 if name == "hangs" else 60.0)) as (made, heard):
        made.run([run(1, "x", code="bad", mode=mode), run(2, "x", code="good", mode="handlers:version")])
        end = await heard.end_of(1)
        assert end.error.startswith(error)
        assert end.status == (TaskStatus.ERROR if error else TaskStatus.FINISHED)
        if name != "hangs":
            assert (await heard.end_of(2)).result == b"1"


@pytest.mark.asyncio
async def test_runs_of_code_are_stopped_and_timed_out_like_any_other(tmp_path: Path) -> None:
    served = Served()
    served.archives = {"one": handlers("1")}
    async with pools(served, tmp_path) as (made, heard):
        made.run(
            [
                run(1, "x", code="one", mode="handlers:hang", timeout_ms=2_000),
                run(2, "x", code="one", mode="handlers:hang"),
            ]
        )
        await heard.word_of(2)
        assert made.stop(2, StopReason.LEASE)
        assert (await heard.end_of(2)).outcome == Outcome.WORKER_DIED
        assert (await heard.end_of(1)).outcome == Outcome.TIMED_OUT
        assert not made.stop(99, StopReason.CANCELLED)


_RUDE = """
import gc
from broker.worker.executors.child_messages import ProgressOf, RunProgress, RunEnded, encode_frame
from broker.machine.commands import EndedRun

def speaker():
    return next(one for one in gc.get_objects() if type(one).__name__ == "_Child")

def flood(context, payload):
    while True:
        speaker()._send(RunProgress(ProgressOf(context.task_id, context.assignment_id, 0.5, "x")))

def forge(context, payload):
    speaker()._send(RunEnded(EndedRun(1002, 2, 2, result=b"forged")))
    return "own"

def garbage(context, payload):
    speaker()._connection.sendall(b"\\xff" * 100)
    context.cancelled.wait(60)
"""


@pytest.mark.asyncio
async def test_code_that_speaks_for_its_process_harms_nobody_else(tmp_path: Path) -> None:
    served = Served(10_000)
    served.archives = {
        "rude": pool({"rude.py": _RUDE}, "rude:forge", "rude:flood", "rude:garbage"),
        "good": handlers("1"),
    }
    async with pools(served, tmp_path) as (made, heard):
        made.run([run(2, "x", code="good", mode="handlers:hang"), run(1, "x", code="rude", mode="rude:forge")])
        assert (await heard.end_of(1)).result == b"own"
        assert 2 not in heard.ends
        made.run([run(3, "x", code="rude", mode="rude:flood"), run(4, "x", code="rude", mode="rude:garbage")])
        assert (await heard.end_of(3)).error == "ProcessKilled: it flooded the worker with messages"
        assert (await heard.end_of(4)).error.startswith("ProcessDied: the process that ran it was killed by SIGKILL")


@pytest.mark.asyncio
async def test_folders_of_dead_workers_are_swept_and_those_of_living_ones_are_not(tmp_path: Path) -> None:
    left = tmp_path / "rsm-code-left"
    left.mkdir()
    (left / "lock").touch()
    served = Served()
    served.archives = {"one": handlers("1")}
    async with pools(served, tmp_path) as (first, heard), pools(served, tmp_path) as (second, also_heard):
        first.run([run(1, "x", code="one", mode="handlers:version")])
        await heard.end_of(1)
        assert not left.exists()
        second.run([run(1, "x", code="one", mode="handlers:version")])
        await also_heard.end_of(1)
        assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.asyncio
async def test_folders_that_are_made_at_once_do_not_sweep_each_other(tmp_path: Path) -> None:
    places = [PoolFolder(tmp_path) for _ in range(4)]
    made = await asyncio.gather(*(asyncio.to_thread(place.make) for place in places for _ in range(4)))
    assert all((folder / "code").is_dir() for folder in made)
    assert len(set(made)) == 16
    for place in places:
        place.remove()
    assert not list(tmp_path.iterdir())
