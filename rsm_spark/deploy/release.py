"""Secrets of a release of the Helm chart: one authority, and for each kind of process what it needs to be known.

All pods of one kind share a certificate: a StatefulSet has one template, and its pods come and go. It names them by a
wildcard, since their names are `<release>-<kind>-<number>.<release>-<kind>.<namespace>.svc`.
"""

from __future__ import annotations

import base64
import json
import re
import tomllib
from pathlib import Path
from typing import Final, NamedTuple, Self

import msgspec

from ledger.decoding import convert
from ledger.errors import UsageError
from rsm_spark.deploy.configuration import CONSOLE, OPERATOR, principals_text, tls_of_clients
from rsm_spark.deploy.secret_folder import LOOPBACK, SecretFolder

KINDS: Final = ("zookeeper", "bookie", "store", "broker", "gateway", CONSOLE)
"""Kinds of pods; each has a Secret `<release>-<kind>`."""
RELEASE_FILE: Final = "release.toml"
SECRETS_FILE: Final = "secrets.json"
_KEYED: Final = ("store", "broker", "gateway")
_RELEASE_LENGTH_MAX: Final = 30  # With kind, number and Kubernetes' own endings it stays below 63 letters.
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


class ReleasePlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A release of the chart.

    Attributes:
        release: Its name, as `helm install` is given it.
        namespace: Where it is installed.
        domain: Of the Kubernetes cluster.

    """

    release: str
    namespace: str = "default"
    domain: str = "cluster.local"

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the plan that lies in a folder.

        Raises:
            UsageError: There is none, or it is none.

        """
        path = folder / RELEASE_FILE
        try:
            return convert(tomllib.loads(path.read_text(encoding="utf-8")), cls).checked()
        except FileNotFoundError:
            raise UsageError(f"{folder}: it holds no {RELEASE_FILE}, so no release that was made here") from None
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
            raise UsageError(f"{path}: {error}") from error

    def checked(self) -> Self:
        """Return the plan itself.

        Raises:
            UsageError: A name is none for Kubernetes.

        """
        for what, name, length_max in (
            ("a release", self.release, _RELEASE_LENGTH_MAX),
            ("a namespace", self.namespace, 63),
            *(("a cluster's domain", part, 63) for part in self.domain.split(".")),
        ):
            if len(name) > length_max or _LABEL.fullmatch(name) is None:
                raise UsageError(
                    f"{name[:100]!r}: expected the name of {what}: at most {length_max} small letters, digits and -, "
                    "with a letter or digit at both ends"
                )
        if not self.release[0].isalpha():
            raise UsageError(f"{self.release!r}: the name of a release begins with a letter")
        return self

    def hosts(self, kind: str) -> list[str]:
        """Return the names under which pods of a kind are reached."""
        service = f"{self.release}-{kind}"
        ends = (f"{self.namespace}.svc", f"{self.namespace}.svc.{self.domain}")
        return [f"{name}.{end}" for name in (f"*.{service}", service, f"{service}-api") for end in ends]


class WrittenRelease(NamedTuple):
    """Result of a command.

    Attributes:
        plan: Of the release.
        changed: Files that are new or other than before, paths below the folder.

    """

    plan: ReleasePlan
    changed: list[str]


class ReleaseFolder(SecretFolder):
    """The folder of one release's secrets; see `SecretFolder`."""

    command = "init-release"
    places = "pods"
    plan_file = RELEASE_FILE

    def begin(self, plan: ReleasePlan) -> WrittenRelease:
        """Write the secrets of a new release.

        Raises:
            UsageError: The folder holds something, or cannot be written.

        """
        self._refuse_another()
        return self._write(plan.checked())

    def change(self, plan: ReleasePlan, *, renew: bool = False) -> WrittenRelease:
        """Write what follows from the plan and the own principals.

        Args:
            plan: Of the release.
            renew: All get new certificates and keys.

        Raises:
            UsageError: The folder lacks what only its first command makes, or cannot be written.

        """
        self._refuse_incomplete()
        return self._write(plan, renew=renew)

    def _write(self, plan: ReleasePlan, *, renew: bool = False) -> WrittenRelease:
        try:
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            authority = self._authority()
            self._operator(authority, renew=renew)
            roles = {**dict.fromkeys(KINDS[1:], "replica"), CONSOLE: "auditor", OPERATOR: OPERATOR}
            principals = principals_text(roles, {name: self._token(name) for name in roles}) + self._own_principals()
            for kind in KINDS:
                self._certificate(authority, kind, "host", kind, [*plan.hosts(kind), *LOOPBACK], renew=renew)
                if kind == "zookeeper":
                    continue
                self._put(f"{kind}/principals.toml", principals.encode())
                self._put(f"{kind}/zookeeper-client.toml", tls_of_clients("host").encode())
                for name in ("zookeeper.login", *(["log.key"] if kind in _KEYED else [])):
                    self._put(f"{kind}/{name}", (self._folder / OPERATOR / name).read_bytes())
            self._put(f"{OPERATOR}/zookeeper-client.toml", tls_of_clients(OPERATOR).encode())
            self._put(SECRETS_FILE, self._secrets(plan))
            self._put("README.md", _readme(plan).encode())
            values = msgspec.to_builtins(plan).items()
            self._put(RELEASE_FILE, "".join(f"{key} = {json.dumps(value)}\n" for key, value in values).encode())
        except OSError as error:
            raise UsageError(f"{error.filename or self._folder}: {error.strerror or error}") from error
        return WrittenRelease(plan, self._changed)

    def _secrets(self, plan: ReleasePlan) -> bytes:
        items = []
        for kind in (*KINDS, OPERATOR):
            files = sorted(path for path in (self._folder / kind).iterdir() if not path.name.startswith("."))
            items.append(
                {
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "metadata": {
                        "name": f"{plan.release}-{kind}",
                        "namespace": plan.namespace,
                        "labels": {"app.kubernetes.io/instance": plan.release, "app.kubernetes.io/component": kind},
                    },
                    "type": "Opaque",
                    "data": {path.name: base64.b64encode(path.read_bytes()).decode() for path in files},
                }
            )
        return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=1).encode() + b"\n"


def _readme(plan: ReleasePlan) -> str:
    return f"""\
# Secrets of the release {plan.release} in the namespace {plan.namespace}

```sh
kubectl apply --namespace {plan.namespace} -f secrets.json
helm install {plan.release} containers/chart --namespace {plan.namespace}
```

| file | what it is |
| --- | --- |
| `secrets.json` | the Secrets of all pods, made of the folders of their kinds |
| `operator/` | certificate, token and keys of an operator; they are in a Secret too |
| `authority/` | the key that signs certificates; it is in no Secret: keep it offline |
| `principals.toml` | your own clients, workers, tenants: `rsm init-release --update -o .`, then `kubectl apply` |

Keep a copy of all of it where other secrets are kept: without `log.key` nobody can take over a log. New certificates:
`rsm init-release --renew -o .`, then `kubectl apply` again; ZooKeeper shows them after a restart of its pods.
"""
