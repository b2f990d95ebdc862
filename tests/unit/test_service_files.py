"""The example service files: systemd takes them, and each says what a server needs."""

from __future__ import annotations

import configparser
import shutil
import subprocess
from pathlib import Path

import pytest

from rsm_spark.cli.config import run_words

_ROOT = Path(__file__).parents[2]
_FOLDER = _ROOT / "examples" / "systemd"
_KINDS = ("autorecovery", "bookie", "broker", "console", "gateway", "serve", "sql", "store", "worker", "zookeeper")


def _unit(kind: str) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string((_FOLDER / f"rsm-{kind}.service").read_text())
    return unit


def test_every_kind_of_server_has_one() -> None:
    assert sorted(path.name for path in _FOLDER.iterdir()) == [f"rsm-{kind}.service" for kind in _KINDS]


@pytest.mark.parametrize("kind", _KINDS)
def test_a_server_is_started_again_and_shut_in(kind: str) -> None:
    unit = _unit(kind)
    service = unit["Service"]
    command = run_words(kind).removeprefix("rsm ").removesuffix(" MODULE:CLASS")
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"
    assert service["ExecStart"] == f"/opt/rsm-spark/bin/rsm {command} --conf /etc/rsm-spark/{kind}.toml"
    assert (_ROOT / "conf" / f"{kind}.toml").exists()
    assert service["Restart"] == "always"
    assert service["UMask"] == "0077"
    assert int(service["LimitNOFILE"]) >= 65_536
    assert int(service["TimeoutStopSec"]) > {"bookie": 60, "worker": 65}.get(kind, 5)
    for name in ("NoNewPrivileges", "PrivateTmp", "ProtectHome", "RestrictSUIDSGID"):
        assert service[name] == "true"


def test_a_bookie_counts_as_started_once_it_says_so() -> None:
    service = _unit("bookie")["Service"]
    assert (service["Type"], service["TimeoutStartSec"]) == ("notify", "infinity")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("kind", _KINDS)
def test_systemd_understands_it(kind: str, tmp_path: Path) -> None:
    text = (_FOLDER / f"rsm-{kind}.service").read_text().replace("/opt/rsm-spark/bin/rsm ", f"{shutil.which('true')} ")
    copy = tmp_path / f"rsm-{kind}.service"
    copy.write_text(text)
    checked = subprocess.run(
        ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, timeout=60, check=False
    )
    about = [line for line in checked.stderr.splitlines() if copy.name in line]
    assert about == []
