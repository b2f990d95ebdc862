"""Dockerfile, compose file and chart: what their own tools and schemas say, and that they agree with the package."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from ledger.core.placement_rule import ClusterPlacement
from rsm_spark.cli.cluster_placement import read_placement_file
from rsm_spark.cli.config import settings_of
from rsm_spark.deploy.configuration import PORTS
from rsm_spark.deploy.release import KINDS
from tests.integration.pods import CHART, helm, rendered, tools_folder

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import kubernetes_validate

_ROOT = Path(__file__).parents[2]
_CONTAINERS = _ROOT / "containers"
_DOCKERFILE = (_CONTAINERS / "Dockerfile").read_text()
_PROJECT = tomllib.loads((_ROOT / "pyproject.toml").read_text())
_RELEASES = ("1.28", "1.31", "1.37")
ZONES = "bookie.zones.a=eu-1a,bookie.zones.b=eu-1b,bookie.zones.7=eu-1c,bookie.replicas=2"


def _packages(lock: Path) -> dict[str, set[str]]:
    """Return the packages of a lock with their versions, and the hashes of each."""
    blocks = re.split(r"\n(?=[a-z0-9])", lock.read_text())
    return {block.split(" ")[0]: set(re.findall(r"sha256:\w{64}", block)) for block in blocks}


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    said = subprocess.run(
        [Path(sys.executable).with_name("hadolint"), _CONTAINERS / "Dockerfile"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (said.returncode, said.stdout) == (0, "")


def test_the_image_is_made_of_packages_that_the_lock_of_all_names() -> None:
    everything = _packages(_ROOT / "requirements.lock")
    for name in ("servers.lock", "build.lock"):
        for package, hashes in _packages(_CONTAINERS / name).items():
            assert hashes, package
            assert hashes <= everything[package], f"{package}: make lock"


def test_the_dockerfile_copies_what_the_wheel_is_made_of_and_the_builder_gets_it() -> None:
    wheel = _PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    shared = {name.partition("/")[0] for name in wheel["shared-data"]}
    copied = {word for line in re.findall(r"^COPY (?!--)(.+) \S+$", _DOCKERFILE, re.MULTILINE) for word in line.split()}
    assert copied >= {*wheel["only-include"], *shared, "pyproject.toml", "README.md", "LICENSE"}
    given = {line[1:] for line in (_CONTAINERS / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] == "!"}
    assert {name.replace("containers/servers.lock", "containers/*.lock") for name in copied} - {
        "containers/build.lock"
    } == given


def test_all_ports_of_a_machine_are_exposed() -> None:
    (exposed,) = re.findall(r"^EXPOSE (.+)$", _DOCKERFILE, re.MULTILINE)
    assert {int(port) for port in exposed.split()} == set(PORTS.values())


def test_compose_itself_loads_the_file(tmp_path: Path) -> None:
    check = shutil.which("compose-check", path=str(tools_folder()))
    if check is None:
        pytest.skip("no compose-check: tools/container_tools.sh builds it")
    said = subprocess.run(
        [check, _CONTAINERS / "compose.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ},
    )
    assert said.returncode == 0, said.stderr


def test_the_chart_is_of_this_version_and_its_values_fit_their_schema() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == _PROJECT["project"]["version"]
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    jsonschema.validate(values, schema)
    wrongs = [
        ("antiAffinity", "some"), ("bookies", "3"), ("colour", "red"), ("zookeeper", {"replicas": 4}),
        ("bookie", {**values["bookie"], "zones": {"A": "x"}}), ("bookie", {**values["bookie"], "id": "name"}),
    ]  # fmt: skip
    for path, wrong in wrongs:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**values, path: wrong}, schema)


def test_helm_lints_the_chart() -> None:
    said = subprocess.run([helm(), "lint", "--strict", CHART], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--set", "antiAffinity=preferred,zookeeper.replicas=5,store.storage.class=fast"),
        (
            "--set",
            "broker.enabled=false,gateway.enabled=false,console.enabled=false,operator.enabled=false,antiAffinity=none",
        ),
        ("--set", "image.pullSecrets[0].name=a,bookie.priorityClassName=high,bookie.nodeSelector.disk=ssd"),
        ("--set", ZONES),
        ("--set", f"{ZONES},bookie.id=address,bookie.nodeSelector.disk=ssd,bookies=2/2/2"),
    ],
)
def test_kubernetes_takes_what_the_chart_makes(words: tuple[str, ...]) -> None:
    documents = rendered("rsm", "--namespace", "logs", *words)
    assert len(documents) > 8
    for document in documents:
        for release in _RELEASES:
            kubernetes_validate.validate(document, release, strict=True)


def _of_kind(documents: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in documents if one["kind"] == kind}


def test_each_process_takes_the_file_and_the_variables_of_its_pods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = rendered(
        "rsm", "--namespace", "logs", "--set", "bookie.settings.journal_file_mib=128,store.settings.port=7250"
    )
    files = {name: one["data"] for name, one in _of_kind(documents, "ConfigMap").items()}
    sets = _of_kind(documents, "StatefulSet")
    budgets = _of_kind(documents, "PodDisruptionBudget")
    assert set(files) == set(sets) == set(budgets) == {f"rsm-{kind}" for kind in KINDS}
    for kind in KINDS:
        (container,) = sets[f"rsm-{kind}"]["spec"]["template"]["spec"]["containers"]
        path = tmp_path / f"{kind}.toml"
        path.write_text(files[f"rsm-{kind}"][path.name])
        with monkeypatch.context() as patch:
            for variable in container["env"]:
                patch.setenv(variable["name"], variable.get("value", "1"))
            settings = {one.name: one for one in settings_of(kind, path)}
        assert not any(one.is_required and one.value is None for one in settings.values())
        assert container["args"][-1] == f"/etc/rsm-spark/settings/{kind}.toml"
        said = tomllib.loads(path.read_text())
        assert {key: settings[key].origin for key in said} == dict.fromkeys(said, "file"), "no variable hides a key"
        if kind == "bookie":
            assert settings["journal_file_mib"].value == 128
        if kind == "store":
            assert (settings["port"].value, settings["advertise"].origin) == (7250, "environment")


def _placement(documents: list[dict[str, Any]], folder: Path) -> ClusterPlacement:
    path = folder / "placement.toml"
    path.write_text(_of_kind(documents, "ConfigMap")["rsm-placement"]["data"][path.name])
    return read_placement_file(path)


def test_a_bookie_has_the_name_of_its_pod_or_its_address_as_before() -> None:
    for words, expected in (((), {"$(POD_NAME)"}), (("--set", "bookie.id=address"), set())):
        (container,) = _of_kind(rendered("rsm", *words), "StatefulSet")["rsm-bookie"]["spec"]["template"]["spec"][
            "containers"
        ]
        told = {one["value"] for one in container["env"] if one["name"] == "RSM_BOOKIE__BOOKIE_ID"}
        assert told == expected
        names = [one["name"] for one in container["env"]]
        assert names[0] == "POD_NAME", "what names it comes behind it"


def test_each_zone_has_bookies_of_its_own_and_the_rule_knows_them_all(tmp_path: Path) -> None:
    documents = rendered("rsm", "--namespace", "logs", "--set", ZONES)
    sets = {name: one["spec"] for name, one in _of_kind(documents, "StatefulSet").items() if "bookie" in name}
    zones = {"7": "eu-1c", "a": "eu-1a", "b": "eu-1b"}
    assert set(sets) == {f"rsm-bookie-{zone}" for zone in zones}
    pods: dict[str, str] = {}
    for zone, label in zones.items():
        spec = sets[f"rsm-bookie-{zone}"]
        assert spec["template"]["spec"]["nodeSelector"] == {"topology.kubernetes.io/zone": label}
        assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
        assert spec["selector"]["matchLabels"]["rsm-spark/zone"] == zone, "no set takes another one's pods for its own"
        assert spec["serviceName"] == "rsm-bookie", "the certificate holds for pods of this Service"
        pods |= {f"rsm-bookie-{zone}-{number}": zone for number in (1, 2)}
    for kind in ("Service", "PodDisruptionBudget"):
        (one,) = (one for name, one in _of_kind(documents, kind).items() if "bookie" in name)
        labels = one["spec"]["selector"]
        labels = labels.get("matchLabels", labels)
        assert all(labels.items() <= spec["template"]["metadata"]["labels"].items() for spec in sets.values())
    found = _placement(documents, tmp_path)
    assert (found.rule.zones_min, found.rule.is_strict) == (3, False)
    assert {name: found.area(name).zone for name in found.bookies} == {pod: f"/{zone}" for pod, zone in pods.items()}
    by_address = _placement(rendered("rsm", "--namespace", "logs", "--set", f"{ZONES},bookie.id=address"), tmp_path)
    assert by_address.area("rsm-bookie-a-1.rsm-bookie.logs.svc:3181").zone == "/a"
    (job,) = _of_kind(documents, "Job").values()
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["cluster", "set-placement", "/etc/rsm-spark/placement/placement.toml"]
    assert "Job" not in {one["kind"] for one in rendered("rsm")}


@pytest.mark.parametrize("words", ["bookie.replicas=2", "bookie.zones.a=x,bookie.zones.b=y,bookie.replicas=1"])
def test_too_few_bookies_are_refused_in_words(words: str) -> None:
    command = [helm(), "template", "rsm", str(CHART), "--kube-version", "1.31.0", "--set", words]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode != 0
    assert "there have to be three bookies" in said.stderr


def test_secrets_are_never_in_the_chart_itself() -> None:
    documents = rendered("rsm")
    assert _of_kind(documents, "Secret") == {}
    for one in _of_kind(documents, "StatefulSet").values():
        (volume,) = (volume for volume in one["spec"]["template"]["spec"]["volumes"] if volume["name"] == "secret")
        assert volume["secret"] == {"secretName": one["metadata"]["name"], "defaultMode": 0o440}
