"""`rsm store run`: one replica of the state store as a process."""

from __future__ import annotations

import typer

from ledger.configuration import process_command
from ledger.http.settings import HttpPortSettings
from rsm_spark.map.etcd_settings import EtcdSettings
from rsm_spark.map.service import map_service
from rsm_spark.server.process import ReadyNotice, run_replica
from rsm_spark.server.replica_options import ReplicaOptions
from rsm_spark.server.replica_server import StoreSettings

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Run a replica of the state store.", pretty_exceptions_enable=False
)


class StoreOptions(ReplicaOptions, frozen=True, kw_only=True):
    """All that `rsm store run` takes."""

    store: StoreSettings
    probes: HttpPortSettings = HttpPortSettings()
    etcd: EtcdSettings = EtcdSettings()


@app.callback()
def _store() -> None:
    # Keeps `run` a sub-command of its own.
    pass


@app.command()
@process_command("store")
def run(given: StoreOptions) -> None:
    """Run a replica until ctrl-C or SIGTERM; two or more of them make the map highly available.

    Examples:
        rsm store run --log orders --data-dir /var/lib/orders-a

        rsm store run --log orders --data-dir /var/lib/orders-b --bookies 3/3/2 --json

        rsm store run --log orders --data-dir /var/lib/orders-b --etcd-port 2379

        rsm store run --log orders --data-dir /var/lib/orders-c --bind 0.0.0.0 --advertise c.example.org:7000
            --tls-cert c.pem --tls-key c.key --tls-ca ca.pem --token-file token

    """
    given.begin()
    settings = given.complete(given.store)
    run_replica(
        given,
        settings,
        lambda client, lake: map_service(client, settings, lake, etcd=given.etcd),
        _words,
        given.probes,
    )


def _words(notice: ReadyNotice) -> str:
    etcd = f", for etcd's clients on {notice.etcd_address}" if notice.etcd_address else ""
    if notice.etcd_json_address:
        etcd += f", as JSON on {notice.etcd_json_address}"
    return f"replica {notice.replica_id} of log {notice.log} serves on {notice.address}{etcd}, ctrl-C ends it"
