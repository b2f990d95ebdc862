"""Write what the locks name as a bill of materials (CycloneDX 1.6, JSON).

    python tools/write_sbom.py [FILE]

Packages of requirements.lock, those of development too, with all hashes that the lock allows (one for each of a
package's files), who needs whom, and the markers under which they are installed; the JARs of jars.lock and of
ZooKeeper's server; the tool that solves the lock. The same locks give the same file: it has no time, and its serial
number comes from what the locks hold. Nothing is looked up.
"""

# ruff: noqa: INP001 - a script

from __future__ import annotations

import json
import re
import sys
import tomllib
import uuid
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_PIN = re.compile(r"^([A-Za-z0-9._-]+)(\[[^\]]*\])?==([^\s;\\]+)\s*(?:;\s*(.*?))?\s*\\?$")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_JARS = ("jars.lock", "ledger/zookeeper_server/jars.lock")
_SPACE = uuid.UUID("6b3f1d0e-5f0b-5c0a-9a61-4a0c9b7e2d11")


def packages(lock: str) -> list[dict[str, Any]]:
    """Return the pins of a lock: name, version, marker, hashes, and the names of those that need it."""
    found: list[dict[str, Any]] = []
    for line in lock.splitlines():
        pin = _PIN.match(line)
        if pin:
            name = re.sub(r"[-_.]+", "-", pin[1]).lower()
            found.append({"name": name, "version": pin[3], "marker": pin[4] or "", "hashes": [], "via": []})
        elif not found or not line.strip():
            continue
        elif digest := _HASH.search(line):
            found[-1]["hashes"].append(digest[1])
        elif line.startswith("    #"):
            needed_by = line.strip().lstrip("#").strip().removeprefix("via").strip()
            if needed_by:
                found[-1]["via"].append(re.sub(r"[-_.]+", "-", needed_by.split(" ")[0]).lower())
        else:
            raise ValueError(f"a line of a lock that is neither a pin, a hash nor a comment: {line[:80]!r}")
    return found


def _component(package: dict[str, Any], scope: str) -> dict[str, Any]:
    purl = f"pkg:pypi/{package['name']}@{package['version']}"
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl,
        "name": package["name"],
        "version": package["version"],
        "scope": scope,
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": digest} for digest in package["hashes"]],
    }
    if package["marker"]:
        component["properties"] = [{"name": "rsm-spark:marker", "value": package["marker"]}]
    return component


def _jar(line: str) -> dict[str, Any]:
    digest, *where, last = line.split()
    if where:  # organisation, name, version: an artifact of Maven
        organisation, name, version = *where, last
        file_name, purl = f"{name}-{version}.jar", f"pkg:maven/{organisation}/{name}@{version}"
    else:
        file_name = last
        name, _, version = file_name.removesuffix(".jar").rpartition("-")
        purl = f"pkg:generic/{name}@{version}?checksum=sha256:{digest}"
    hashes = [{"alg": "SHA-256", "content": digest}]
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "scope": "optional", "purl": purl,
            "hashes": hashes, "properties": [{"name": "rsm-spark:file", "value": file_name}]}  # fmt: skip


def bill(root: Path = ROOT) -> dict[str, Any]:
    """Return the bill of materials of a tree."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    locks = {name: (root / name).read_text(encoding="utf-8") for name in ("requirements.lock", *_JARS)}
    tools = (root / "tools" / "uv.lock").read_text(encoding="utf-8")
    found = packages(locks["requirements.lock"])
    components = [_component(package, "required") for package in found]
    jars = [_jar(line) for lock in _JARS for line in locks[lock].splitlines() if line.strip()]
    own_ref = f"pkg:pypi/{project['name']}@{project['version']}"
    refs = {package["name"]: component["bom-ref"] for package, component in zip(found, components, strict=True)}
    needs: dict[str, list[str]] = {own_ref: [jar["bom-ref"] for jar in jars], **{ref: [] for ref in refs.values()}}
    for package in found:
        for name in package["via"] or [""]:
            needs[refs.get(name, own_ref)].append(refs[package["name"]])
    serial = uuid.uuid5(_SPACE, json.dumps([project["version"], locks, tools]))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own_ref,
                "name": project["name"],
                "version": project["version"],
                "purl": own_ref,
                "licenses": [{"license": {"id": project["license"]}}],
            }
        },
        "components": [*components, *jars, *(_component(package, "excluded") for package in packages(tools))],
        "dependencies": [{"ref": ref, "dependsOn": sorted(set(names))} for ref, names in sorted(needs.items())],
    }


def main() -> None:
    """Write the file."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist" / "sbom.cdx.json"
    made = bill()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"{path}: {len(made['components'])} components\n")


if __name__ == "__main__":
    main()
