"""The deb: built, read by lintian, installed into a Debian of its own, called there, and taken out again."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from rsm_spark.deploy.plan import ClusterPlan
from rsm_spark.deploy.unit import unit_file

_ROOT = Path(__file__).resolve().parents[2]
_SOURCES = [Path("/etc/apt/sources.list"), Path("/etc/apt/sources.list.d/debian.sources")]


def _run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=_ROOT)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def _debian(folder: Path) -> None:
    """Make a small Debian of the packages that the deb depends on, from where apt of this machine takes them."""
    sources = [path for path in _SOURCES if path.exists()]
    _run(
        "mmdebstrap",
        "--quiet",
        "--variant=minbase",
        "--include=adduser,libstdc++6,python3.11",
        "bookworm",
        folder,
        *sources,
    )


@pytest.fixture(scope="module")
def deb() -> Path:
    if shutil.which("dpkg-deb") is None or not Path("/usr/bin/python3.11").exists():
        pytest.skip("the deb is for Debian 12, and built there")
    return _ROOT / _run("tools/deb.sh").strip()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_lintian_finds_nothing_but_what_has_a_reason(deb: Path) -> None:
    if shutil.which("lintian") is None:
        pytest.skip("no lintian: apt-get install lintian")
    assert _run("lintian", "--fail-on", "error,warning", deb) == ""


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_deb_is_installed_called_and_taken_out(deb: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("a Debian of its own needs root")
    if shutil.which("mmdebstrap") is None:
        pytest.skip("no mmdebstrap: apt-get install mmdebstrap")
    debian = tmp_path / "debian"
    _debian(debian)
    shutil.copy(deb, debian / "rsm-spark.deb")

    def there(*command: str) -> str:
        return _run("chroot", debian, *command)

    there("dpkg", "--install", "/rsm-spark.deb")
    assert there("dpkg", "--verify", "rsm-spark") == "", "its files are as packed"
    assert there("rsm", "--version").strip().endswith(there("dpkg-query", "-W", "-f", "${Version}", "rsm-spark"))
    as_rsm = ("setpriv", "--reuid=rsm", "--regid=rsm", "--clear-groups", "env", "HOME=/var/lib/rsm-spark")
    for words in (
        ["node", "--help"],
        ["bookie", "run", "--help"],
        ["broker", "run", "--help"],
        ["sql", "serve", "--help"],
    ):
        assert "Usage: rsm" in there(*as_rsm, "rsm", *words)
    assert "zookeeper-3" in there("ls", "/opt/rsm-spark/share/rsm-spark/zookeeper")
    for folder in ("etc/rsm-spark", "var/lib/rsm-spark"):
        assert there("stat", "--format", "%U:%G %a", f"/{folder}") == "rsm:rsm 700\n"
    assert (debian / "lib/systemd/system/rsm-node.service").read_text() == unit_file(ClusterPlan(machine=()))
    assert there("find", "/opt/rsm-spark", "-perm", "/022", "-not", "-type", "l") == "", "root alone may write"
    home = debian / "opt/rsm-spark"
    texts = [*home.glob("bin/rsm*"), *home.glob("lib/*/site-packages/rsm_spark-*/*"), home / "pyvenv.cfg"]
    contents = [path.read_bytes() for path in texts if path.is_file()]
    assert len(contents) > 5
    assert not [content for content in contents if str(_ROOT).encode() in content or b"/tmp/" in content]
    (debian / "var/lib/rsm-spark/kept").touch()

    there("dpkg", "--purge", "rsm-spark")
    assert not (debian / "opt/rsm-spark").exists()
    assert (debian / "var/lib/rsm-spark/kept").exists()
