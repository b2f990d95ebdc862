"""Pods of the rendered chart as containers: what a kubelet does with volumes, variables and names."""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.containers import USER, ContainerSpec

__all__ = ["CHART", "Pods", "helm", "rendered"]

_ROOT = Path(__file__).resolve().parents[2]
CHART = _ROOT / "containers" / "chart"


def helm() -> str:
    """Return the path of helm; skip the test where there is none."""
    found = shutil.which("helm", path=f"{os.environ['PATH']}:{tools_folder()}")
    if found is None:
        pytest.skip("no helm: tools/container_tools.sh builds it")
    return found


def tools_folder() -> Path:
    """Return where tools/container_tools.sh puts what it builds."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folders = sorted(Path(os.environ.get("RSM_CACHE_DIR") or cache / "rsm-spark").glob("container-tools-????????????"))
    return folders[-1] if folders else Path("/nonexistent")


def rendered(release: str, *words: str) -> list[dict[str, Any]]:
    """Return what the chart makes."""
    # A helm that `go install` built takes an old Kubernetes for given.
    command = [helm(), "template", release, str(CHART), "--kube-version", "1.31.0", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


class Pods:
    """Pods of the StatefulSets of a chart.

    Args:
        documents: That the chart makes.
        secrets: Secrets that are there.
        folder: Gets the volumes.

    """

    def __init__(self, documents: Sequence[dict[str, Any]], secrets: Sequence[dict[str, Any]], folder: Path) -> None:
        self._folder = folder
        self._named = {(one["kind"], one["metadata"]["name"]): one for one in (*documents, *secrets)}
        self._sets: dict[str, dict[str, Any]] = {}
        for (kind, name), one in self._named.items():
            if kind == "StatefulSet":
                first = one["spec"]["ordinals"]["start"]
                for number in range(first, first + one["spec"]["replicas"]):
                    self._sets[f"{name}-{number}"] = one

    @property
    def names(self) -> list[str]:
        """Names of all pods."""
        return list(self._sets)

    def host(self, name: str) -> str:
        """Return the name by which a pod is reached."""
        one = self._sets[name]
        return f"{name}.{one['spec']['serviceName']}.{one['metadata']['namespace']}.svc"

    def hosts(self) -> dict[str, str]:
        """Return those names, and the pod of each."""
        return {self.host(name): name for name in self._sets}

    def ready(self, name: str) -> list[str]:
        """Return the command that tells whether a pod is ready."""
        return self._container(name)["readinessProbe"]["exec"]["command"]

    def alive(self, name: str) -> list[str] | None:
        """Return the command that tells whether a pod lives; None = its port is asked."""
        probe = self._container(name)["livenessProbe"]
        return probe["exec"]["command"] if "exec" in probe else None

    def spec(self, name: str) -> ContainerSpec:
        """Return a pod of a StatefulSet."""
        one = self._sets[name]
        template = one["spec"]["template"]
        labels = {**template["metadata"]["labels"], "apps.kubernetes.io/pod-index": name.rpartition("-")[2]}
        claims = [claim["metadata"]["name"] for claim in one["spec"].get("volumeClaimTemplates", ())]
        return self._of(name, name, template["spec"], labels, claims)

    def operator_spec(self, name: str) -> ContainerSpec:
        """Return the pod in which an operator types."""
        (deployment,) = (one for (kind, _), one in self._named.items() if kind == "Deployment")
        return self._of(name, name, deployment["spec"]["template"]["spec"], {}, [])

    def test_spec(self, name: str) -> ContainerSpec:
        """Return the pod of `helm test`."""
        (pod,) = (one for (kind, _), one in self._named.items() if kind == "Pod")
        return self._of(name, pod["metadata"]["name"], pod["spec"], {}, [])

    def _container(self, name: str) -> dict[str, Any]:
        (container,) = self._sets[name]["spec"]["template"]["spec"]["containers"]
        return container

    def _of(
        self, machine: str, name: str, spec: dict[str, Any], labels: dict[str, str], claims: Sequence[str]
    ) -> ContainerSpec:
        (container,) = spec["containers"]
        security = {**spec["securityContext"], **container["securityContext"]}
        assert (security["runAsUser"], security["fsGroup"], security["readOnlyRootFilesystem"]) == (USER, USER, True)
        fields = {"metadata.name": name, "spec.nodeName": f"node-of-{name}"}
        fields.update({f"metadata.labels['{key}']": value for key, value in labels.items()})
        environment: dict[str, str] = {}
        for variable in container["env"]:
            value = variable.get("value")
            if value is None:
                value = fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
            environment[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda match: environment[match[1]], value)
        volumes = {volume["name"]: volume for volume in spec.get("volumes", ())}
        mounts = []
        for mount in container["volumeMounts"]:
            if mount["mountPath"] == "/tmp":
                continue  # The containers of these tests have it anyway.
            here = self._folder / f"volume-{name}-{mount['name']}"
            if not here.exists():
                self._fill(here, None if mount["name"] in claims else volumes[mount["name"]])
            mounts.append((here, mount["mountPath"], mount.get("readOnly", False)))
        words = container.get("command") or container["args"]
        return ContainerSpec(machine, words, environment, mounts, is_whole="command" in container)

    def _fill(self, here: Path, volume: dict[str, Any] | None) -> None:
        """Make a volume as a kubelet does: of root, and of the group that the pod names."""
        files: dict[str, bytes] = {}
        mode = 0o644
        if volume is not None and "secret" in volume:
            secret = self._named["Secret", volume["secret"]["secretName"]]
            files = {name: base64.b64decode(text) for name, text in secret["data"].items()}
            mode = volume["secret"]["defaultMode"]
        elif volume is not None and "configMap" in volume:
            data = self._named["ConfigMap", volume["configMap"]["name"]]["data"]
            files = {name: text.encode() for name, text in data.items()}
        here.mkdir()
        os.chown(here, 0, USER)
        here.chmod(0o2775)
        for name, content in files.items():
            (here / name).write_bytes(content)
            os.chown(here / name, 0, USER)
            (here / name).chmod(mode)
