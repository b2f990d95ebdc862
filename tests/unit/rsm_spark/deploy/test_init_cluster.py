"""Files of a cluster: what they hold, who may read them, and what a change changes."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from ledger.core.placement_rule import ClusterPlacement
from ledger.errors import UsageError
from ledger.rights.callers import Callers
from ledger.rights.principal import Role
from ledger.zookeeper_server.server import write_files
from ledger.zookeeper_server.settings import ZooKeeperSettings
from rsm_spark.cli.cluster_placement import read_placement_file
from rsm_spark.deploy.cli import init_cluster
from rsm_spark.deploy.configuration import PORTS
from rsm_spark.deploy.files import ClusterFolder, WrittenCluster
from rsm_spark.deploy.plan import SERVICES, ClusterPlan
from rsm_spark.log.key_file import read_key_file
from rsm_spark.node.cli import app as node_app
from rsm_spark.node.settings import grace_ms, read_node_file

HOSTS = ("10.0.0.1", "b.example.org", "10.0.0.3")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _folder(path: Path) -> ClusterFolder:
    return ClusterFolder(path, now=NOW, days=30)


def _begin(path: Path, *hosts: str, **settings: object) -> WrittenCluster:
    return _folder(path).begin(ClusterPlan.of_hosts(hosts or HOSTS, **settings))


def _openssl(*arguments: str) -> str:
    return subprocess.run(["openssl", *arguments], check=True, capture_output=True, text=True, timeout=60).stdout


def test_everything_is_for_its_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    before = os.umask(0)
    try:
        written = _begin(folder)
    finally:
        os.umask(before)
    assert sorted(written.changed) == sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()
    )
    for path in [folder, *folder.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_each_process_takes_its_file(tmp_path: Path) -> None:
    written = _begin(tmp_path, log="orders")
    for host in written.plan.hosts:
        said = CliRunner().invoke(node_app, ["check", "--config", str(tmp_path / host / "etc" / "node.toml"), "--json"])
        assert said.exit_code == 0, said.exception
        assert [one["kind"] for one in json.loads(said.output)] == [
            "zookeeper", "bookie", "store", "broker", "gateway", "console",
        ]  # fmt: skip
        values = tomllib.loads((tmp_path / host / "etc" / "zookeeper.toml").read_text())
        servers = tuple(values.pop("servers").split(","))
        ours = {key: str(tmp_path / host / "etc" / Path(values[key]).name) for key in ("tls_cert", "tls_key", "tls_ca")}
        settings = ZooKeeperSettings(**{**values, **ours, "servers": servers, "data_dir": str(tmp_path / f"{host}-zk")})
        assert "server.2=b.example.org:2888:3888" in write_files(settings).read_text()


def test_files_are_served_where_they_are_asked_for(tmp_path: Path) -> None:
    written = _begin(tmp_path, services=("store", "files"))
    for host in written.plan.hosts:
        said = CliRunner().invoke(node_app, ["check", "--config", str(tmp_path / host / "etc" / "node.toml"), "--json"])
        assert said.exit_code == 0, said.exception
        assert [one["kind"] for one in json.loads(said.output)] == ["zookeeper", "bookie", "store", "files"]
        assert f"| {PORTS['files, WebHDFS']} | files, WebHDFS |" in (tmp_path / host / "README.md").read_text()
        values = tomllib.loads((tmp_path / host / "etc" / "files.toml").read_text())
        assert (values["http_port"], values["http_advertise"]) == (9870, host)
        assert values["http_tls_cert"].endswith("/host.pem")


def test_a_console_asks_as_an_auditor_of_its_machine_and_only_where_one_runs(tmp_path: Path) -> None:
    plan = _begin(tmp_path / "cluster").plan
    folder = tmp_path / "cluster"
    callers = Callers(str(folder / HOSTS[1] / "etc" / "principals.toml"), None)
    for host in HOSTS:
        etc = folder / host / "etc"
        token = (etc / "console.token").read_text().strip()
        assert callers.of_token(token.encode()).role is Role.AUDITOR
        assert callers.of_token(token.encode()).name == f"console@{host}"
        assert f"URI:rsm-spark:console@{host}" in _openssl(
            "x509", "-in", str(etc / "console.pem"), "-noout", "-ext", "subjectAltName"
        )
        assert callers.of_certificate([f"rsm-spark:console@{host}"]).role is Role.AUDITOR
        values = tomllib.loads((etc / "console.toml").read_text())
        assert (values["http_port"], values["http_advertise"], values["allowed_hosts"]) == (8088, host, host)
        assert f"https://{host}:8088" in (folder / host / "README.md").read_text()
        node = read_node_file(etc / "node.toml")
        own = {one.kind: one.environment for one in node.process}
        assert own["console"]["RSM_STORE__TOKEN_FILE"] == "/etc/rsm-spark/console.token"
        assert own["console"]["RSM_CLIENT__TLS_CERT"] == "/etc/rsm-spark/console.pem"
        assert not any(variables for kind, variables in own.items() if kind != "console")
    gone = (folder / HOSTS[2] / "etc" / "console.token").read_text().strip()
    _folder(folder).change(plan.replaced(HOSTS[2], "10.0.0.9"))
    assert Callers(str(folder / HOSTS[0] / "etc" / "principals.toml"), None).of_token(gone.encode()) is None

    _begin(tmp_path / "other", services=["store"])
    assert not list((tmp_path / "other").rglob("console.*"))
    assert "console" not in (tmp_path / "other" / HOSTS[0] / "README.md").read_text()
    plan_file = tmp_path / "other" / "cluster.toml"
    plan_file.write_text(plan_file.read_text().replace('["store"]', '["store", "console"]'))
    changed = _folder(tmp_path / "other").change(ClusterPlan.read(tmp_path / "other")).changed
    assert f"{HOSTS[0]}/etc/console.pem" in changed
    assert not any(name.endswith(("host.pem", "/token")) for name in changed)


def test_certificates_name_their_machine_and_are_of_the_authority(tmp_path: Path) -> None:
    _begin(tmp_path)
    for host, name in zip(HOSTS, ("IP Address:10.0.0.1", "DNS:b.example.org", "IP Address:10.0.0.3"), strict=True):
        cert = str(tmp_path / host / "etc" / "host.pem")
        at = str(int((NOW + timedelta(days=1)).timestamp()))
        _openssl("verify", "-attime", at, "-x509_strict", "-CAfile", str(tmp_path / "authority" / "ca.pem"), cert)
        shown = _openssl("x509", "-in", cert, "-noout", "-ext", "subjectAltName")
        assert name in shown
        assert f"URI:rsm-spark:{host}" in shown
        assert (tmp_path / host / "etc" / "host.key").read_text().startswith("-----BEGIN PRIVATE KEY-----")


def test_the_principals_are_the_machines_the_operator_and_ones_own(tmp_path: Path) -> None:
    _begin(tmp_path)
    (tmp_path / "principals.toml").write_text(
        f'[[principal]]\nname = "billing"\nrole = "client"\ntokens = ["{"a" * 64}"]\naccess = "read"\n'
    )
    changed = _folder(tmp_path).change(ClusterPlan.read(tmp_path)).changed
    assert changed == [f"{host}/etc/principals.toml" for host in HOSTS]
    callers = Callers(str(tmp_path / HOSTS[1] / "etc" / "principals.toml"), None)
    token = (tmp_path / HOSTS[0] / "etc" / "token").read_text().strip()
    assert callers.of_token(token.encode()).role is Role.REPLICA
    assert callers.of_certificate(["rsm-spark:b.example.org"]).name == "b.example.org"
    operator = (tmp_path / "operator" / "token").read_text().strip()
    assert callers.of_token(operator.encode()).role is Role.OPERATOR
    assert callers.of_token(b"another token that nobody knows") is None
    tokens = {(tmp_path / host / "etc" / "token").read_text() for host in HOSTS}
    assert len(tokens) == 3


def test_a_cluster_is_never_begun_anew(tmp_path: Path) -> None:
    _begin(tmp_path / "cluster")
    before = {path: path.read_bytes() for path in (tmp_path / "cluster").rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match="holds a cluster already"):
        _begin(tmp_path / "cluster")
    assert before == {path: path.read_bytes() for path in (tmp_path / "cluster").rglob("*") if path.is_file()}
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("")
    with pytest.raises(UsageError, match="holds other files"):
        _begin(tmp_path / "other")


def test_one_machine_more_changes_who_may_do_what_and_nothing_that_is_secret(tmp_path: Path) -> None:
    plan = _begin(tmp_path).plan
    changed = _folder(tmp_path).change(plan.with_machine("10.0.0.4")).changed
    others = {name for name in changed if not name.startswith("10.0.0.4/")}
    assert others == {*(f"{host}/etc/principals.toml" for host in HOSTS), "README.md", "cluster.toml"}
    assert not (tmp_path / "10.0.0.4" / "etc" / "zookeeper.toml").exists()
    assert read_key_file(tmp_path / "10.0.0.4" / "etc" / "log.key") == read_key_file(tmp_path / "operator" / "log.key")
    assert ClusterPlan.read(tmp_path).hosts == [*HOSTS, "10.0.0.4"]


def test_a_replaced_machine_gives_its_number_and_keeps_no_right(tmp_path: Path) -> None:
    plan = _begin(tmp_path).plan
    token = (tmp_path / HOSTS[2] / "etc" / "token").read_text().strip()
    _folder(tmp_path).change(plan.replaced(HOSTS[2], "10.0.0.9"))
    for host in (*HOSTS[:2], "10.0.0.9"):
        etc = tmp_path / host / "etc"
        servers = tomllib.loads((etc / "zookeeper.toml").read_text())["servers"]
        assert servers == "1=10.0.0.1,2=b.example.org,3=10.0.0.9"
        assert "10.0.0.9:2281" in read_node_file(etc / "node.toml").environment["RSM_METADATA_URI"]
        assert Callers(str(etc / "principals.toml"), None).of_token(token.encode()) is None
    with pytest.raises(UsageError, match="no machine 10.0.0.3"):
        ClusterPlan.read(tmp_path).replaced(HOSTS[2], "10.0.0.10")


def test_each_bookie_has_its_machines_name_for_life_and_a_cluster_of_before_keeps_its_addresses(tmp_path: Path) -> None:
    plan = _begin(tmp_path).plan

    def ids() -> list[str | None]:
        files = [tmp_path / host / "etc" / "bookie.toml" for host in ClusterPlan.read(tmp_path).hosts]
        return [tomllib.loads(file.read_text()).get("bookie_id") for file in files]

    assert ids() == list(HOSTS)
    path = tmp_path / "cluster.toml"
    path.write_text(path.read_text().replace('host = "10.0.0.1"', 'host = "10.9.0.1"'))
    _folder(tmp_path).change(ClusterPlan.read(tmp_path))
    assert ids() == ["10.0.0.1", *HOSTS[1:]], "its address has changed"
    path.write_text(path.read_text().replace('bookie_id = "10.0.0.3"', 'bookie_id = "10.0.0.1"'))
    with pytest.raises(UsageError, match="10.0.0.1 is there twice"):
        ClusterPlan.read(tmp_path)
    before = [line for line in path.read_text().splitlines() if not line.startswith(("bookie_id", "zone"))]
    path.write_text("\n".join(before))
    _folder(tmp_path).change(ClusterPlan.read(tmp_path).with_machine("10.0.0.4"))
    assert ids() == [None, None, None, "10.0.0.4"]
    assert plan.zones == []
    assert not list(tmp_path.rglob("placement.toml"))


def test_zones_are_where_copies_lie_and_take_turns_in_zookeeper(tmp_path: Path) -> None:
    hosts = ("10.0.0.1@north", "10.0.0.2@north", "10.0.0.3@south", f"{'h' * 60}.example.org@east")
    plan = _begin(tmp_path, *hosts).plan
    assert [(one.host[:8], one.zookeeper) for one in plan.machine] == [
        ("10.0.0.1", 1), ("10.0.0.2", 0), ("10.0.0.3", 2), ("hhhhhhhh", 3),
    ]  # fmt: skip
    assert not (tmp_path / "10.0.0.2" / "etc" / "zookeeper.toml").exists()

    def placed() -> ClusterPlacement:
        return read_placement_file(tmp_path / "operator" / "placement.toml")

    found = placed()
    assert (found.rule.zones_min, found.rule.is_strict) == (3, False)
    for machine in plan.machine:
        bookie = tomllib.loads((tmp_path / machine.host / "etc" / "bookie.toml").read_text())
        assert found.area(bookie["bookie_id"]).zone == f"/{machine.zone}"
    assert "rsm cluster set-placement placement.toml" in (tmp_path / "README.md").read_text()

    _folder(tmp_path).change(plan.replaced("10.0.0.3", "10.0.0.9"))
    assert placed().place("10.0.0.9") == "/south/10.0.0.9"
    changed = _folder(tmp_path).change(ClusterPlan.read(tmp_path).with_machine("10.0.0.5@west")).changed
    assert "operator/placement.toml" in changed
    assert placed().rule.zones_min == 3, "an entry has three copies"
    with pytest.raises(UsageError, match="10.0.0.6 has no zone"):
        ClusterPlan.read(tmp_path).with_machine("10.0.0.6")


def test_two_zones_ask_for_two_and_one_for_nothing(tmp_path: Path) -> None:
    _begin(tmp_path / "two", "a@north", "b@south", "c@north")
    two = read_placement_file(tmp_path / "two" / "operator" / "placement.toml")
    assert two.rule.zones_min == 2
    _begin(tmp_path / "one", "a@north", "b@north", "c@north")
    assert not (tmp_path / "one" / "operator" / "placement.toml").exists()


def test_new_certificates_are_other_ones_of_the_same_authority(tmp_path: Path) -> None:
    plan = _begin(tmp_path).plan
    changed = _folder(tmp_path).change(plan, renew=True).changed
    assert set(changed) == {
        *(f"{host}/etc/{name}.{kind}" for host in HOSTS for name in ("host", "console") for kind in ("pem", "key")),
        "operator/operator.pem",
        "operator/operator.key",
    }
    (tmp_path / "authority" / "ca.key").unlink()
    with pytest.raises(UsageError, match="ca.key is gone"):
        _folder(tmp_path).change(plan, renew=True)


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        (("a", "b"), "give 3 or more"),
        (("a", "b", "a"), "named twice"),
        (("a", "b", "../c"), "expected a machine's name"),
        (("a", "b", "c\n"), "expected a machine's name"),
        (("a", "b", "operator"), "expected a machine's name"),
        (("a", "b", "10.0.0.300"), "no IPv4 address"),
        (("a", "b", "0.0.0.0"), "no address by which others"),
        (("a@x", "b", "c@y"), "b has no zone"),
        (("a@x", "b@", "c@y"), "a zone follows"),
        (("a@x", "b@y y", "c@y"), "no zone: at most 64"),
        (("a", "b", "readonly"), "bookie-id"),
    ],
)
def test_what_is_no_machine_is_refused_and_nothing_is_written(
    tmp_path: Path, hosts: tuple[str, ...], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        _begin(tmp_path / "cluster", *hosts)
    assert not (tmp_path / "cluster").exists()


@pytest.mark.parametrize(
    "settings",
    [{"etc": "relative"}, {"etc": "/a b"}, {"rsm": "/x\nUser=root"}, {"user": "a b"}, {"services": ["spark"]}],
)
def test_settings_that_would_change_a_unit_are_refused(tmp_path: Path, settings: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        _begin(tmp_path, *HOSTS, **settings)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_the_unit_and_it_waits_for_all_processes(tmp_path: Path) -> None:
    _begin(tmp_path, rsm=str(shutil.which("true")))
    unit = tmp_path / HOSTS[0] / "rsm-node.service"
    checked = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    assert [line for line in checked.stderr.splitlines() if unit.name in line] == []
    stop_s = next(int(line.partition("=")[2]) for line in unit.read_text().splitlines() if "TimeoutStopSec" in line)
    processes = read_node_file(tmp_path / HOSTS[0] / "etc" / "node.toml").process
    assert stop_s * 1000 > sum(grace_ms(one) for one in processes)


def test_the_page_of_three_machines_says_what_the_readme_of_a_machine_says(tmp_path: Path) -> None:
    _begin(tmp_path, *HOSTS, services=SERVICES)
    page = (Path(__file__).parents[4] / "docs" / "deploy.md").read_text()
    readme = (tmp_path / HOSTS[0] / "README.md").read_text()
    commands = readme.partition("```sh\n")[2].partition("```")[0]
    assert commands in page
    for port in PORTS.values():
        assert re.search(rf"\b{port}\b", page), port
        assert re.search(rf"\b{port}\b", readme), port


def test_the_command_takes_a_folder_from_where_it_is_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    app.command()(init_cluster)
    for words in (["a", "b", "c"], ["--add", "d"], ["--replace", "b=e"], ["--renew"], ["--update"]):
        said = CliRunner().invoke(app, [*words, "-o", "new/cluster", "--json"])
        assert said.exit_code == 0, said.exception
    assert json.loads(said.output) == {"folder": "new/cluster", "hosts": ["a", "e", "c", "d"], "changed": []}
    assert (tmp_path / "new" / "cluster" / "e" / "etc" / "host.pem").is_file()
    for words in ([], ["a", "b", "c", "--renew"], ["--add", "f", "--renew"]):
        refused = CliRunner().invoke(app, [*words, "-o", "new/cluster"])
        assert isinstance(refused.exception, UsageError)
