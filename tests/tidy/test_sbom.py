"""The bill of materials names what the locks name: all of it, with its hashes, and nothing else."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "write_sbom.py"
_spec = importlib.util.spec_from_file_location("write_sbom", TOOL)
assert _spec is not None
assert _spec.loader is not None
write_sbom = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(write_sbom)


@pytest.fixture(scope="module")
def bill(tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("sbom") / "made" / "sbom.json"
    subprocess.run([sys.executable, str(TOOL), str(path)], check=True, capture_output=True)
    return json.loads(path.read_bytes())


def test_it_has_the_form_that_tools_read(bill) -> None:
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"])
    assert bill["metadata"]["component"]["type"] == "application"
    refs = [x["bom-ref"] for x in bill["components"]] + [bill["metadata"]["component"]["bom-ref"]]
    assert len(refs) == len(set(refs))
    for component in bill["components"]:
        assert component["type"] == "library"
        assert component["scope"] in {"required", "optional", "excluded"}
        assert component["purl"].startswith("pkg:")
        assert component["version"]
        assert component["hashes"]
        for digest in component["hashes"]:
            assert (digest["alg"], len(bytes.fromhex(digest["content"]))) == ("SHA-256", 32)
    for edge in bill["dependencies"]:
        assert {edge["ref"], *edge["dependsOn"]} <= set(refs)


def test_it_names_every_line_of_the_locks_and_every_hash(bill) -> None:
    text = (ROOT / "requirements.lock").read_text() + (ROOT / "tools" / "uv.lock").read_text()
    pins = set(re.findall(r"^([a-z0-9._-]+)==(\S+)", text, re.MULTILINE | re.IGNORECASE))
    jars = {line.split()[1] for line in (ROOT / "jars.lock").read_text().splitlines() if line.strip()}
    of_zookeeper = (ROOT / "ledger" / "zookeeper_server" / "jars.lock").read_text().splitlines()
    jars |= {"-".join(line.split()[2:]) + ".jar" for line in of_zookeeper}
    packages = [x for x in bill["components"] if x["purl"].startswith("pkg:pypi/")]
    assert {(x["name"], x["version"]) for x in packages} == {
        (re.sub(r"[-_.]+", "-", name).lower(), version) for name, version in pins
    }
    others = [x for x in bill["components"] if x not in packages]
    assert {x["properties"][0]["value"] for x in others} == jars
    digests = re.findall(r"sha256:([0-9a-f]{64})", text)
    assert sorted(h["content"] for x in packages for h in x["hashes"]) == sorted(digests)
    assert len(packages) > 100


def test_it_says_who_needs_whom(bill) -> None:
    needs = {edge["ref"]: edge["dependsOn"] for edge in bill["dependencies"]}
    names = {x["bom-ref"]: x["name"] for x in bill["components"]}
    by_name = {names.get(ref, "rsm-spark"): {names[x] for x in refs} for ref, refs in needs.items()}
    assert "kazoo" in by_name["rsm-spark"]
    assert "annotated-doc" in by_name["typer"]
    reached = {"rsm-spark"}
    while more := {name for known in reached for name in by_name.get(known, ())} - reached:
        reached |= more
    tools = {x["name"] for x in bill["components"] if x["scope"] == "excluded"}
    assert {x["name"] for x in bill["components"]} - tools <= reached


def test_the_same_locks_give_the_same_file(bill) -> None:
    assert write_sbom.bill(ROOT) == bill


def test_a_line_that_is_not_understood_is_no_bill() -> None:
    with pytest.raises(ValueError, match="neither a pin"):
        write_sbom.packages("one==1.0 \\\n    --hash=sha256:" + "0" * 64 + "\n-e git+somewhere\n")
