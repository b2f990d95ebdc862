"""Parts of the jail that need no kernel of a certain kind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from broker.worker.jail.cgroups import Cgroups
from broker.worker.jail.jails import JailSettings
from broker.worker.jail.reading import jail_path, readable_places
from broker.worker.jail.support import JailSupport, uid_of
from broker.worker.option_units import files_unit
from ledger.errors import UsageError


@pytest.mark.parametrize(
    ("support", "is_enough"),
    [
        (JailSupport(), False),
        (JailSupport(has_namespaces=True, has_seccomp=True), True),
        (JailSupport(has_namespaces=True), False),
        (JailSupport(has_own_user=True, landlock_abi=1, has_seccomp=True), True),
        (JailSupport(landlock_abi=6, has_seccomp=True, cgroups=("pids",)), True),
        (JailSupport(landlock_abi=6, has_seccomp=True), False),
        (JailSupport(landlock_abi=5, has_seccomp=True, cgroups=("pids",)), False),
        (JailSupport(has_own_user=True, has_seccomp=True), False),
    ],
)
def test_a_jail_is_made_only_of_what_lets_nothing_out(support: JailSupport, is_enough: bool) -> None:  # noqa: FBT001
    assert (not support.missing) == is_enough
    assert ("--trust-code" in support.refusal) == (not is_enough)


def test_the_folder_in_which_a_worker_stands_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cluster.token").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), *sys.path])
    shown = [*readable_places((), has_network=True), *jail_path()]
    assert not any(Path(place) == tmp_path or Path(place) in tmp_path.parents for place in shown)
    assert "/" not in readable_places(("/",), has_network=False)
    assert str(tmp_path) in readable_places((str(tmp_path),), has_network=False)


def test_each_child_is_another_user() -> None:
    base = JailSettings().uid_base
    found = [uid_of(base, number) for number in range(4096)]
    assert len(set(found)) == 4096
    assert min(found) >= base
    assert max(found) < base + (1 << 24)


def test_the_network_is_granted_by_name_or_pattern() -> None:
    settings = JailSettings(networks=("mailer", "crawl-*"))
    assert [settings.grants_network(code) for code in ("mailer", "crawl-1", "mailer2", "")] == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("reads", ["/", "/there/is/nothing", "/usr,/"])
def test_what_code_may_read_is_there_and_not_everything(reads: str) -> None:
    with pytest.raises(UsageError, match="expected files and folders that are there"):
        files_unit("--code-reads").read(reads)


def test_cgroups_are_made_and_gone_again() -> None:
    cgroups = Cgroups()
    files = cgroups.make("test", memory_bytes=1 << 30, processes=10)
    assert bool(files) == bool(cgroups.controllers)
    assert all(Path(file).exists() for file in files)
    cgroups.remove("test")
    assert not any(Path(file).exists() for file in files)


_LEFT = """
import os, sys, time
from broker.worker.jail import kernel
from broker.worker.jail.orphans import _children, end_rest

uid = int(sys.argv[1])
kernel.adopt_orphans()
if not os.fork():
    if uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    for _ in range(5):  # Each in a session of its own, its parent gone: no group holds them.
        if not os.fork():
            os.setsid()
            if os.fork():
                os._exit(0)
            if uid:
                end = time.monotonic() + 10
                while not os.fork() and time.monotonic() < end:  # And goes on by a child of its own, again and again.
                    pass
                os._exit(0)
            time.sleep(600)
    os._exit(0)
time.sleep(0.2)
end_rest(uid)
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("none", list(_children()))
"""


@pytest.mark.parametrize("uid", [0, 0x7F00_1234])
def test_what_code_has_left_is_found_and_killed_without_cgroups_and_namespaces(uid: int) -> None:
    if uid and os.geteuid() != 0:
        pytest.skip("only root gives children users of their own")
    words = [sys.executable, "-c", _LEFT, str(uid)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("none []\n", "")
    if uid:
        alive = [entry for entry in Path("/proc").iterdir() if entry.name.isdecimal() and _owner(entry) == uid]
        assert not alive


def _owner(entry: Path) -> int:
    try:
        return entry.stat().st_uid
    except OSError:
        return -1
