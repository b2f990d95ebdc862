"""`rsm init-release`: the secrets of a release of the Helm chart."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ledger.errors import UsageError
from rsm_spark.deploy.release import SECRETS_FILE, ReleaseFolder, ReleasePlan


def init_release(
    release: Annotated[str, typer.Argument(metavar="[RELEASE]", help="Name that `helm install` is given.")] = "",
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Namespace of the release.")] = "default",
    domain: Annotated[str, typer.Option("--domain", help="Domain of the Kubernetes cluster.")] = "cluster.local",
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the files.")] = Path("release"),
    renew: Annotated[bool, typer.Option("--renew", help="New certificates and keys for all pods.")] = False,
    update: Annotated[
        bool, typer.Option("--update", help="Write what follows from principals.toml as it is now.")
    ] = False,
    days: Annotated[int, typer.Option("--days", min=1, max=3650, help="Time of new certificates.")] = 730,
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Write the Secrets of a release of the Helm chart: an authority, certificates, tokens, keys, principals.

    Every port of the release is for TLS and for known callers. A folder that holds a release is never begun anew.

    Examples:
        rsm init-release rsm --namespace logs -o release

        rsm init-release --renew -o release

    """
    if bool(release) + renew + update != 1:
        raise UsageError("give the name of a release, to begin one, or one of --renew and --update, to change one")
    folder = ReleaseFolder(output, now=datetime.fromtimestamp(int(time.time()), UTC), days=days)
    if release:
        written = folder.begin(ReleasePlan(release=release, namespace=namespace, domain=domain))
    else:
        written = folder.change(ReleasePlan.read(output), renew=renew)
    if json:
        told = {"folder": str(output), "release": written.plan.release, "changed": written.changed}
        typer.echo(msgspec.json.encode(told).decode())
        return
    is_changed = SECRETS_FILE in written.changed
    typer.echo(f"{output / SECRETS_FILE}: {'new or changed' if is_changed else 'as before'}")
    typer.echo(f"\nWhat to do with it: {output / 'README.md'}")
