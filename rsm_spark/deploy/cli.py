"""`rsm init-cluster`: the files of a cluster of machines."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ledger.errors import UsageError
from ledger.options import names_of
from rsm_spark.deploy.files import ClusterFolder
from rsm_spark.deploy.plan import SERVICES, USUAL_SERVICES, ClusterPlan

_DEFAULTS = ClusterPlan(machine=())


def init_cluster(
    hosts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="HOST[@ZONE]…", help="Name or IPv4 address of each machine, as the others reach it, and its zone."
        ),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the files.")] = Path("cluster"),
    add: Annotated[str | None, typer.Option("--add", metavar="HOST[@ZONE]", help="One machine more.")] = None,
    replace: Annotated[
        str | None,
        typer.Option("--replace", metavar="OLD=NEW[@ZONE]", help="Another machine in the place of a lost one."),
    ] = None,
    renew: Annotated[bool, typer.Option("--renew", help="New certificates and keys for all machines.")] = False,
    update: Annotated[
        bool, typer.Option("--update", help="Write what follows from cluster.toml and principals.toml as they are now.")
    ] = False,
    log: Annotated[str, typer.Option("--log", help="Name of the map's log.")] = _DEFAULTS.log,
    services: Annotated[
        str,
        typer.Option(
            "--services",
            metavar="NAMES",
            help=f"Besides ZooKeeper and a bookie, on every machine, of {','.join(SERVICES)}.",
        ),
    ] = ",".join(USUAL_SERVICES),
    etc: Annotated[str, typer.Option("--etc", help="Folder of the configuration on a machine.")] = _DEFAULTS.etc,
    state: Annotated[str, typer.Option("--state", help="Folder of the data on a machine.")] = _DEFAULTS.state,
    rsm: Annotated[str, typer.Option("--rsm", help="Path of `rsm` on a machine.")] = _DEFAULTS.rsm,
    user: Annotated[str, typer.Option("--user", help="Who runs it on a machine.")] = _DEFAULTS.user,
    days: Annotated[int, typer.Option("--days", min=1, max=3650, help="Time of new certificates.")] = 730,
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Write all files of a cluster of three machines or more: one folder for each, with a README.

    Configuration, an authority and certificates, tokens, the key of the logs, ZooKeeper's ensemble, node.toml and a
    unit for systemd. Every port is for TLS and for known callers. A folder that holds a cluster is never begun anew.
    With zones, of which one may be lost, also the rule by which copies lie in several of them.

    Examples:
        rsm init-cluster 10.0.0.1 10.0.0.2 10.0.0.3 -o cluster

        rsm init-cluster a.example.org b.example.org c.example.org -o cluster --services store,files

        rsm init-cluster 10.0.1.1@north 10.0.2.1@south 10.0.3.1@east -o cluster

        rsm init-cluster --replace 10.0.0.2=10.0.0.5 -o cluster

    """
    changes = [
        name
        for name, given in (("--add", add), ("--replace", replace), ("--renew", renew), ("--update", update))
        if given
    ]
    if len(changes) + bool(hosts) != 1:
        raise UsageError(
            "give machines, to begin a cluster, or one of --add, --replace, --renew and --update, to change one"
        )
    folder = ClusterFolder(output, now=datetime.fromtimestamp(int(time.time()), UTC), days=days)
    if hosts:
        given = {"log": log, "services": names_of(services), "etc": etc, "state": state, "rsm": rsm, "user": user}
        written = folder.begin(ClusterPlan.of_hosts(hosts, **given))
    else:
        written = folder.change(_changed(ClusterPlan.read(output), add, replace), renew=renew)
    if json:
        told = {"folder": str(output), "hosts": written.plan.hosts, "changed": written.changed}
        typer.echo(msgspec.json.encode(told).decode())
        return
    for host in written.plan.hosts:
        names = [name for name in written.changed if name.startswith(f"{host}/")]
        typer.echo(
            f"{output / host}: {len(names)} files are new or changed" if names else f"{output / host}: as before"
        )
    typer.echo(f"\nWhat to do with them: {output / 'README.md'}")


def _changed(plan: ClusterPlan, add: str | None, replace: str | None) -> ClusterPlan:
    if add is not None:
        return plan.with_machine(add)
    if replace is not None:
        old, separator, new = replace.partition("=")
        if not separator:
            raise UsageError(f"--replace {replace!r}: expected OLD=NEW")
        return plan.replaced(old, new)
    return plan
