"""Secrets of a release of the chart: what they hold, who is known by them, and what a change changes."""

from __future__ import annotations

import base64
import json
import stat
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from ledger.errors import UsageError
from ledger.rights.callers import Callers
from ledger.rights.principal import Role
from rsm_spark.deploy.release import KINDS, ReleaseFolder, ReleasePlan
from rsm_spark.deploy.release_cli import init_release

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _folder(path: Path) -> ReleaseFolder:
    return ReleaseFolder(path, now=NOW, days=30)


def _secrets(path: Path) -> dict[str, dict[str, bytes]]:
    items = json.loads((path / "secrets.json").read_text())["items"]
    return {
        item["metadata"]["name"]: {name: base64.b64decode(text) for name, text in item["data"].items()}
        for item in items
    }


def test_each_kind_has_a_secret_with_what_it_needs_and_no_more(tmp_path: Path) -> None:
    _folder(tmp_path).begin(ReleasePlan(release="rsm", namespace="logs"))
    secrets = _secrets(tmp_path)
    assert list(secrets) == [*(f"rsm-{kind}" for kind in KINDS), "rsm-operator"]
    assert set(secrets["rsm-zookeeper"]) == {"ca.pem", "host.pem", "host.key"}
    assert "log.key" not in secrets["rsm-bookie"], "whoever has a bookie can forge no entry"
    assert "log.key" not in secrets["rsm-console"]
    assert secrets["rsm-store"]["log.key"] == secrets["rsm-operator"]["log.key"]
    assert not any("ca.key" in files for files in secrets.values())
    tokens = {files["token"] for files in secrets.values() if "token" in files}
    assert len(tokens) == 6
    for path in (tmp_path, *tmp_path.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_certificate_is_for_all_pods_of_its_kind(tmp_path: Path) -> None:
    _folder(tmp_path).begin(ReleasePlan(release="rsm", namespace="logs"))
    command = ["openssl", "x509", "-in", str(tmp_path / "bookie" / "host.pem"), "-noout", "-ext", "subjectAltName"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for name in ("DNS:*.rsm-bookie.logs.svc", "DNS:rsm-bookie-api.logs.svc.cluster.local", "DNS:localhost"):
        assert name in shown
    assert "URI:rsm-spark:bookie" in shown
    callers = Callers(str(tmp_path / "store" / "principals.toml"), None)
    assert callers.of_certificate(["rsm-spark:bookie"]).role is Role.REPLICA
    assert callers.of_certificate(["rsm-spark:console"]).role is Role.AUDITOR
    assert callers.of_token((tmp_path / "console" / "token").read_bytes().strip()).role is Role.AUDITOR
    assert callers.of_token((tmp_path / "operator" / "token").read_bytes().strip()).role is Role.OPERATOR


def test_a_release_is_never_begun_anew_and_own_principals_come_in(tmp_path: Path) -> None:
    plan = _folder(tmp_path).begin(ReleasePlan(release="rsm")).plan
    with pytest.raises(UsageError, match="holds a cluster already"):
        _folder(tmp_path).begin(plan)
    (tmp_path / "principals.toml").write_text(
        f'[[principal]]\nname = "billing"\nrole = "client"\ntokens = ["{"a" * 64}"]\naccess = "read"\n'
    )
    changed = _folder(tmp_path).change(ReleasePlan.read(tmp_path)).changed
    assert set(changed) == {*(f"{kind}/principals.toml" for kind in KINDS[1:]), "secrets.json"}
    renewed = _folder(tmp_path).change(plan, renew=True).changed
    assert "zookeeper/host.key" in renewed
    assert not any(name.endswith(("token", "log.key", "zookeeper.login", "ca.pem")) for name in renewed)
    (tmp_path / "operator" / "log.key").unlink()
    with pytest.raises(UsageError, match="log.key is gone"):
        _folder(tmp_path).change(plan)


@pytest.mark.parametrize(
    "names",
    [
        {"release": ""},
        {"release": "Rsm"},
        {"release": "9a"},
        {"release": "a" * 31},
        {"release": "a", "namespace": "a.b"},
        {"release": "a", "namespace": "-a"},
        {"release": "a", "domain": "a..b"},
    ],
)
def test_what_kubernetes_would_not_take_is_refused_and_nothing_is_written(
    tmp_path: Path, names: dict[str, str]
) -> None:
    with pytest.raises(UsageError, match="expected the name of|begins with a letter"):
        _folder(tmp_path / "release").begin(ReleasePlan(**names))
    assert not (tmp_path / "release").exists()


def test_the_command_takes_a_folder_from_where_it_is_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    app.command()(init_release)
    for words in (["rsm", "-n", "logs"], ["--renew"], ["--update"]):
        said = CliRunner().invoke(app, [*words, "-o", "new/release", "--json"])
        assert said.exit_code == 0, said.exception
    assert json.loads(said.output) == {"folder": "new/release", "release": "rsm", "changed": []}
    for words in ([], ["rsm", "--renew"], ["--renew", "--update"]):
        assert isinstance(CliRunner().invoke(app, [*words, "-o", "new/release"]).exception, UsageError)
