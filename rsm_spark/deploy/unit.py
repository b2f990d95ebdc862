"""Unit of systemd that runs a machine's processes, and the README for whoever puts its folder on the machine."""

from __future__ import annotations

from rsm_spark.deploy.configuration import CONSOLE, PORTS
from rsm_spark.deploy.plan import ClusterPlan, PlannedMachine

_STOP_S = 140  # Longer than all processes may take one after the other, by `rsm_spark/node/settings.py`.

_UNIT = """\
[Unit]
Description=rsm-spark: the processes of this machine
After=network-online.target
Wants=network-online.target
# Never give up: what is away may be back tomorrow.
StartLimitIntervalSec=0

[Service]
Type=notify
ExecStart={rsm} node run --config {etc}/node.toml
User={user}
Group={user}
WorkingDirectory={state}
Environment=PYTHONUNBUFFERED=1
Restart=always
RestartSec=2
# The processes are ended by their parent, one after the other; what is left after that is killed.
KillMode=mixed
TimeoutStopSec={stop_s}
LimitNOFILE=262144
UMask=0077
ReadWritePaths={state}
ReadOnlyPaths={etc}
NoNewPrivileges=true
CapabilityBoundingSet=
AmbientCapabilities=
PrivateTmp=true
PrivateDevices=true
ProtectSystem=strict
ProtectHome=true
ProtectClock=true
ProtectHostname=true
ProtectKernelLogs=true
ProtectKernelModules=true
ProtectKernelTunables=true
ProtectControlGroups=true
ProtectProc=invisible
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
RestrictNamespaces=true
RestrictRealtime=true
RestrictSUIDSGID=true
RemoveIPC=true
LockPersonality=true
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
"""

_README = """\
# {host}

Files of this machine. They hold secrets: whoever has them is this machine. Delete this copy when they are in place.

```sh
useradd --system --home-dir {state} --shell /usr/sbin/nologin {user}
install -d -o {user} -g {user} -m 0700 {etc} {state}
install -o {user} -g {user} -m 0600 etc/* {etc}/
install -m 0644 rsm-node.service /etc/systemd/system/
sudo -u {user} {rsm} node check --config {etc}/node.toml
systemctl daemon-reload && systemctl enable --now rsm-node
```

It needs {rsm} (Python 3.11) and Java 17 with ZooKeeper's JARs: `{rsm} zookeeper jars`.

Open these ports to the other machines, and those of the services to whoever uses them:

| port | who listens |
| --- | --- |
{ports}
The state of all processes: `systemctl status rsm-node`, and `https://{host}:{node_port}/status` with a token.
{console}"""


_PLACEMENT = """
Copies are to lie in several of the zones {zones}. Once the cluster runs, and again whenever `operator/placement.toml`
has changed, in the operator's folder:

```sh
. ./env.sh
rsm cluster set-placement placement.toml
```
"""


def unit_file(plan: ClusterPlan) -> str:
    """Return the unit, the same on each machine."""
    return _UNIT.format(rsm=plan.rsm, etc=plan.etc, state=plan.state, user=plan.user, stop_s=_STOP_S)


def machine_readme(plan: ClusterPlan, machine: PlannedMachine) -> str:
    """Return what is told to whoever puts the files on a machine."""
    kinds = {"bookie", "node", *plan.services, *(["zookeeper"] if machine.zookeeper else [])}
    ports = "".join(f"| {port} | {who} |\n" for who, port in PORTS.items() if who.split(",")[0] in kinds)
    console = ""
    if CONSOLE in plan.services:
        url = f"https://{machine.host}:{PORTS['console, HTTP']}"
        console = f"The whole cluster on one page: `{url}`, with the operator's token.\n"
    return _README.format(
        host=machine.host, rsm=plan.rsm, etc=plan.etc, state=plan.state, user=plan.user, ports=ports,
        node_port=PORTS["node, HTTP"], console=console,
    )  # fmt: skip


def cluster_readme(plan: ClusterPlan) -> str:
    """Return what is told to who made the files."""
    folders = "".join(f"| `{host}/` | files of that machine | to it, as its README says |\n" for host in plan.hosts)
    placement = _PLACEMENT.format(zones=", ".join(plan.zones)) if len(plan.zones) > 1 else ""
    return f"""\
# A cluster of {len(plan.machine)} machines

| folder | what it is | where it goes |
| --- | --- | --- |
{folders}\
| `operator/` | certificate, token and keys of an operator | to who runs the cluster: `cd operator && . ./env.sh` |
| `authority/` | the key that signs certificates | nowhere: keep it offline, with `cluster.toml` |

Keep a copy of all of it where other secrets are kept: without `log.key` nobody can take over a log.
{placement}
```sh
rsm init-cluster --add HOST -o .               # one machine more
rsm init-cluster --replace OLD=NEW -o .        # another machine in the place of a lost one
rsm init-cluster --renew -o .                  # new certificates for all
rsm init-cluster --update -o .                 # after a change of principals.toml
```

Each of them says which files have changed, and on which machines.
"""
