"""Files of configuration of each machine, from the plan alone: pure, so that a plan that changes shows what changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Final

from rsm_spark.deploy.certificates import certificate_name
from rsm_spark.deploy.plan import ClusterPlan, PlannedMachine, is_address

ZOOKEEPER_PORT: Final = 2281
"""Port of ZooKeeper for clients by TLS, as is usual."""
PORTS: Final = {
    "zookeeper": ZOOKEEPER_PORT,
    "zookeeper, between servers": 2888,
    "zookeeper, votes": 3888,
    "bookie": 3181,
    "bookie, HTTP": 8000,
    "store": 7200,
    "store, frames": 7201,
    "store, HTTP": 7210,
    "broker": 7300,
    "broker, frames": 7301,
    "broker, HTTP": 7364,
    "gateway, HTTP": 7400,
    "console, HTTP": 8088,
    "files": 7500,
    "files, frames": 7501,
    "files, WebHDFS": 9870,
    "node, HTTP": 8700,
}
"""Ports of a machine, by who listens."""
OPERATOR: Final = "operator"
"""Name of the operator's folder and principal."""
CONSOLE: Final = "console"
"""Name of a console's files on its machine."""


PLACEMENT_FILE: Final = "placement.toml"
"""Name of the file of a cluster's placement rule in the operator's folder."""
_RACK_MAX: Final = 64
_COPIES: Final = 3
_BOOKIES: Final = f"{_COPIES}/{_COPIES}/2"
"""Ensemble, write quorum and ack quorum of all services."""


def console_name(host: str) -> str:
    """Return the name of the principal as which the console of a machine asks: no machine can be called so."""
    return f"{CONSOLE}@{host}"


def metadata_uri(plan: ClusterPlan) -> str:
    """Return the address of the cluster's metadata."""
    servers = ";".join(f"{one.host}:{ZOOKEEPER_PORT}" for one in plan.ensemble)
    return f"zk+hierarchical://{servers}/ledgers"


def machine_files(
    plan: ClusterPlan, machine: PlannedMachine, tokens: Mapping[str, str], own_principals: str = ""
) -> dict[str, str]:
    """Return the files of one machine, by their names in its folder `etc`.

    Args:
        plan: Of the cluster.
        machine: One of its machines.
        tokens: Of each machine, of its console where it runs one, and of the operator.
        own_principals: Text of further principals, of whoever runs the cluster.

    """
    roles = {**dict.fromkeys(plan.hosts, "replica"), OPERATOR: OPERATOR}
    if CONSOLE in plan.services:
        roles |= {console_name(host): "auditor" for host in plan.hosts}
    files = {
        "principals.toml": principals_text(roles, tokens) + own_principals,
        "zookeeper-client.toml": tls_of_clients("host"),
    }
    kinds = [*(["zookeeper"] if machine.zookeeper else []), "bookie", *plan.services]
    for kind in kinds:
        files[f"{kind}.toml"] = _toml(_VALUES[kind](plan, machine))
    files["node.toml"] = _node(plan, machine, kinds)
    return files


def operator_files(plan: ClusterPlan) -> dict[str, str]:
    """Return the files of the operator's folder, by their names."""
    files = {"zookeeper-client.toml": tls_of_clients("operator"), "env.sh": _environment_script(plan)}
    if len(plan.zones) > 1:
        files[PLACEMENT_FILE] = _placement(plan)
    return files


def _etc(plan: ClusterPlan, name: str) -> str:
    return f"{plan.etc}/{name}"


def _zookeeper(plan: ClusterPlan, machine: PlannedMachine) -> Iterator[tuple[str, object]]:
    yield "data_dir", f"{plan.state}/zookeeper"
    yield "bind", "0.0.0.0" if not is_address(machine.host) else machine.host
    yield "port", ZOOKEEPER_PORT
    yield "server_id", machine.zookeeper
    yield "servers", ",".join(f"{one.zookeeper}={one.host}" for one in plan.ensemble)
    yield from _tls(plan)
    yield "tls_ca", _etc(plan, "ca.pem")
    if not all(is_address(one.host) for one in plan.ensemble):
        yield "any_host", True  # An address leads back to a name only where somebody has seen to it.


def _bookie(plan: ClusterPlan, machine: PlannedMachine) -> Iterator[tuple[str, object]]:
    yield "data_dir", f"{plan.state}/bookie"
    if machine.bookie_id:
        yield "bookie_id", machine.bookie_id
    yield "bind", _bind(machine)
    yield "advertise", machine.host
    yield "port", PORTS["bookie"]
    yield from _tls(plan)
    yield "tls_ca", _etc(plan, "ca.pem")
    yield "tls_required", True
    yield "principals", _etc(plan, "principals.toml")
    yield "http_port", PORTS["bookie, HTTP"]
    yield "http_bind", _bind(machine)
    yield "allowed_hosts", machine.host


def _replica(plan: ClusterPlan, machine: PlannedMachine, kind: str) -> Iterator[tuple[str, object]]:
    yield "data_dir", f"{plan.state}/{kind}"
    yield "replica_id", machine.host
    yield "domain", machine.host
    yield "bind", _bind(machine)
    yield "advertise", machine.host
    yield "port", PORTS[kind]
    yield "framed_port", PORTS[f"{kind}, frames"]
    yield "bookies", _BOOKIES
    yield from _tls(plan)
    yield "tls_ca", _etc(plan, "ca.pem")
    yield "token_file", _etc(plan, "token")
    yield "principals", _etc(plan, "principals.toml")
    yield "log_key", _etc(plan, "log.key")
    yield "http_port", PORTS["files, WebHDFS" if kind == "files" else f"{kind}, HTTP"]
    yield "http_bind", _bind(machine)
    yield "allowed_hosts", machine.host


def _store(plan: ClusterPlan, machine: PlannedMachine) -> Iterator[tuple[str, object]]:
    yield "log", plan.log
    yield from _replica(plan, machine, "store")


def _broker(plan: ClusterPlan, machine: PlannedMachine) -> Iterator[tuple[str, object]]:
    yield from _replica(plan, machine, "broker")
    yield from _http(plan, machine)


def _files(plan: ClusterPlan, machine: PlannedMachine) -> Iterator[tuple[str, object]]:
    yield from _replica(plan, machine, "files")
    yield from _http(plan, machine)


def _gateway(plan: ClusterPlan, machine: PlannedMachine) -> Iterator[tuple[str, object]]:
    yield "http_port", PORTS["gateway, HTTP"]
    yield "http_bind", _bind(machine)
    yield "allowed_hosts", machine.host
    yield "bookies", _BOOKIES
    yield "principals", _etc(plan, "principals.toml")
    yield "log_key", _etc(plan, "log.key")
    yield from _http(plan, machine)


def _console(plan: ClusterPlan, machine: PlannedMachine) -> Iterator[tuple[str, object]]:
    yield "http_port", PORTS["console, HTTP"]
    yield "http_bind", _bind(machine)
    yield "http_advertise", machine.host
    yield "http_tls_cert", _etc(plan, f"{CONSOLE}.pem")
    yield "http_tls_key", _etc(plan, f"{CONSOLE}.key")
    yield "allowed_hosts", machine.host
    yield "principals", _etc(plan, "principals.toml")
    yield "data_dir", f"{plan.state}/{CONSOLE}"


def _http(plan: ClusterPlan, machine: PlannedMachine) -> Iterator[tuple[str, object]]:
    yield "http_advertise", machine.host
    yield "http_tls_cert", _etc(plan, "host.pem")
    yield "http_tls_key", _etc(plan, "host.key")


def _tls(plan: ClusterPlan) -> Iterator[tuple[str, object]]:
    yield "tls_cert", _etc(plan, "host.pem")
    yield "tls_key", _etc(plan, "host.key")


def _bind(machine: PlannedMachine) -> str:
    return machine.host if is_address(machine.host) else "0.0.0.0"


_VALUES: Final = {
    "zookeeper": _zookeeper, "bookie": _bookie, "store": _store, "broker": _broker, "gateway": _gateway,
    CONSOLE: _console, "files": _files,
}  # fmt: skip


def _node(plan: ClusterPlan, machine: PlannedMachine, kinds: list[str]) -> str:
    door = {
        "name": machine.host,
        "http_port": PORTS["node, HTTP"],
        "http_bind": _bind(machine),
        "allowed_hosts": [machine.host],
        "tls_cert": "host.pem",
        "tls_key": "host.key",
        "principals": "principals.toml",
    }
    variables = {
        "RSM_METADATA_URI": metadata_uri(plan),
        "RSM_ZK_TLS_FILE": _etc(plan, "zookeeper-client.toml"),
        "RSM_ZK_AUTH_FILE": _etc(plan, "zookeeper.login"),
        "RSM_CLIENT__TLS_CA": _etc(plan, "ca.pem"),
        "RSM_CLIENT__TLS_CERT": _etc(plan, "host.pem"),
        "RSM_CLIENT__TLS_KEY": _etc(plan, "host.key"),
    }
    processes = "".join(
        f'\n[[process]]\nkind = "{kind}"\n{_consoles_variables(plan) if kind == CONSOLE else ""}' for kind in kinds
    )
    return f"{_toml(door.items())}\n[environment]\n{_toml(variables.items())}{processes}"


def _consoles_variables(plan: ClusterPlan) -> str:
    """Return as whom a console asks: an auditor, where the other processes of its machine are replicas."""
    token = _etc(plan, f"{CONSOLE}.token")
    variables = {
        "RSM_CLIENT__TLS_CERT": _etc(plan, f"{CONSOLE}.pem"),
        "RSM_CLIENT__TLS_KEY": _etc(plan, f"{CONSOLE}.key"),
        "RSM_STORE__TLS_CA": _etc(plan, "ca.pem"),
        "RSM_STORE__TOKEN_FILE": token,
        "RSM_BROKER_TOKEN_FILE": token,
    }
    return f"\n[process.environment]\n{_toml(variables.items())}"


def principals_text(roles: Mapping[str, str], tokens: Mapping[str, str]) -> str:
    """Return a file of principals.

    Args:
        roles: Name and role of each; its certificate has that name too.
        tokens: Of each.

    """
    head = (
        '# Who may do what. Add your own below the last one, on every machine: docs/operations.md, "Who may do what".\n'
    )
    return head + "".join(
        "\n[[principal]]\n"
        + _toml(
            {
                "name": name,
                "role": role,
                "tokens": [hashlib.sha256(tokens[name].encode()).hexdigest()],
                "certificates": [certificate_name(name)],
            }.items()
        )
        for name, role in roles.items()
    )


def tls_of_clients(name: str) -> str:
    """Return the file by which clients of ZooKeeper find certificate and key of this name beside it."""
    return _toml({"ca": "ca.pem", "cert": f"{name}.pem", "key": f"{name}.key"}.items())


def _placement(plan: ClusterPlan) -> str:
    """Return the rule for zones, and the place of each bookie: a zone that is lost must not stop new ledgers."""
    places = {json.dumps(one.bookie_id or one.host): f"/{one.zone}/{one.host[:_RACK_MAX]}" for one in plan.machine}
    rule = {"zones_min": min(len(plan.zones), _COPIES), "is_strict": False}
    head = f"# The places of copies, which this command sets: rsm cluster set-placement {PLACEMENT_FILE}\n"
    return f"{head}\n[rule]\n{_toml(rule.items())}\n[bookies]\n{_toml(places.items())}"


def _environment_script(plan: ClusterPlan) -> str:
    here = "$RSM_OPERATOR"
    variables = {
        "RSM_METADATA_URI": metadata_uri(plan),
        "RSM_ZK_TLS_FILE": f"{here}/zookeeper-client.toml",
        "RSM_ZK_AUTH_FILE": f"{here}/zookeeper.login",
        "RSM_CLIENT__TLS_CA": f"{here}/ca.pem",
        "RSM_CLIENT__TLS_CERT": f"{here}/operator.pem",
        "RSM_CLIENT__TLS_KEY": f"{here}/operator.key",
        "RSM_STORE__TLS_CA": f"{here}/ca.pem",
        "RSM_STORE__TOKEN_FILE": f"{here}/token",
        "RSM_BROKER_TLS_CA": f"{here}/ca.pem",
        "RSM_BROKER_TOKEN_FILE": f"{here}/token",
        "RSM_LOG_KEY": f"{here}/log.key",
    }
    lines = "".join(f'export {name}="{value}"\n' for name, value in variables.items())
    return (
        "# . ./env.sh in this folder makes `rsm` speak with the cluster as its operator.\n"
        'RSM_OPERATOR="${RSM_OPERATOR:-$PWD}"\n'
        f"{lines}"
    )


def _toml(items: object) -> str:
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in items)  # type: ignore[attr-defined]
