"""Cgroups of version 2, by the kernel: in a cgroup that is handed to a process as systemd does it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from broker.worker.jail.cgroups import _mounted_2

_MEMORY_BYTES = 64 << 20
_WORKER = """
import json, os, signal, subprocess, sys, time
from pathlib import Path
from broker.worker.jail.cgroups import Cgroups

home = Path(sys.argv[1])
(home / "worker").mkdir()
os.setxattr(home, "user.delegate", b"1")
(home / "worker" / "cgroup.procs").write_text("0")
cgroups = Cgroups()

def started(files, code):
    def enter():
        for file in files:
            Path(file).write_text("0")
    return subprocess.Popen([sys.executable, "-c", code], preexec_fn=enter, start_new_session=True)

files = cgroups.make("one", memory_bytes=int(sys.argv[2]), processes=4)
files = [file for file in files if file.startswith(str(home))]
found = {"files": len(files), "controllers": sorted(cgroups._bounded_by_2)}
left = [started(files, "import time; time.sleep(600)") for _ in range(2)]
found["inside"] = len(Path(files[0]).read_text().split())
cgroups.remove("one")
found["ended by"] = [one.wait(60) for one in left]
cgroups.remove("one")
found["left"] = sorted(one.name for one in home.glob("rsm-code-*"))
if found["controllers"]:
    files = cgroups.make("two", memory_bytes=int(sys.argv[2]), processes=4)
    found["hog"] = started(files, "x = bytes(1 << 20) * 1000").wait(60)
    lines = ["import os", "count = 0", "try:"]
    lines += [" while count < 100 and os.fork(): count += 1", "except OSError: os._exit(count)"]
    count = chr(10).join(lines)
    found["forks"] = started(files, count).wait(60)
    cgroups.remove("two")
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    mounted = _mounted_2()
    if mounted is None or not os.access(mounted, os.W_OK):
        pytest.skip("cgroups of version 2 are not mounted here, or not this user's to make")
    home = mounted / f"rsm-test-{os.getpid()}"
    home.mkdir()
    try:
        words = [sys.executable, "-c", _WORKER, str(home), str(_MEMORY_BYTES)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        said: dict[str, Any] = json.loads(done.stdout)
        return said
    finally:
        for folder in (home / "worker", home):
            if folder.exists():
                folder.rmdir()


def test_what_is_in_a_cgroup_of_version_2_ends_with_it_whatever_group_it_is_in(found: dict[str, Any]) -> None:
    assert (found["files"], found["inside"]) == (1, 2)
    assert found["ended by"] == [-9, -9]
    assert found["left"] == []


def test_memory_and_processes_are_bounded_by_version_2(found: dict[str, Any]) -> None:
    if set(found["controllers"]) != {"memory", "pids"}:
        there = Path("/proc/cgroups").read_text()
        pytest.skip(f"version 2 has {found['controllers']} of memory and pids; version 1 holds the rest:\n{there}")
    assert found["hog"] == -9
    assert 0 < found["forks"] <= 4
