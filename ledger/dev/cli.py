"""`rsm up`, `rsm ps`, `rsm down`: a development cluster from the command line."""

from __future__ import annotations

import shlex
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ledger.dev.cluster import DevCluster
from ledger.dev.state import ServerState
from ledger.dev.supervisor import Supervisor
from ledger.private_files import state_folder

_ZOOKEEPER_DEFAULT = "127.0.0.1:2181"  # Where every client looks if nothing else is said.

_DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        envvar="RSM_DEV_DATA_DIR",
        help="Holds data, logs and ports of the cluster.",
        show_default="rsm-spark/dev in your state directory",
    ),
]
_Ports = Annotated[
    int | None,
    typer.Option(
        "--ports",
        metavar="FIRST",
        min=1024,
        max=65_400,
        help="ZooKeeper listens here, and bookies at the ports behind it.",
        show_default="as last time, else free ones",
    ),
]
_Json = Annotated[bool, typer.Option("--json", help="Print one line of JSON instead of a table.")]


def up(
    data_dir: _DataDir = None,
    bookies: Annotated[
        int | None,
        typer.Option("--bookies", min=0, max=100, help="How many.", show_default="as last time, else 3"),
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option("--zookeeper", metavar="HOST:PORT", help="Use a ZooKeeper that runs instead of starting one."),
    ] = None,
    autorecovery: Annotated[
        bool | None,
        typer.Option(
            "--autorecovery/--no-autorecovery",
            help="Have bookies repair what a lost one held.",
            show_default="as last time, else on",
        ),
    ] = None,
    first_port: _Ports = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return as soon as everything answers.")] = False,
    json: _Json = False,
) -> None:
    """Start ZooKeeper and bookies on this machine; they end with this program (ctrl-C), the data stay.

    The same data directory brings the same ports and the same data back. If some servers died, it starts those.
    Servers that end on their own are started again: by this program while it runs, with --detach by a small process
    that stays until `rsm down`. If that one died, `rsm up` takes over.

    Examples:
        rsm up

        rsm up --bookies 4 --data-dir /var/tmp/try --detach --json

        rsm up --ports 24000 --data-dir /var/tmp/try

    """
    _check_address(zookeeper)
    console = Console(stderr=True)
    cluster = DevCluster(
        _resolve(data_dir),
        bookie_count=bookies,
        zookeeper_address=zookeeper,
        well_known_ports=data_dir is None,
        first_port=first_port,
        has_auto_recovery=autorecovery,
        on_progress=lambda words: None if json else console.print(f"[dim]{words} …[/dim]", highlight=False),
        outlives=detach,
    )
    signal.signal(signal.SIGTERM, _interrupt)
    cluster.start(may_run=True)
    cluster.make_log_key()
    try:
        is_ours = cluster.supervise(is_detached=detach)
        _announce(cluster, data_dir, json=json, detach=detach or not is_ours)
        if is_ours and not detach:
            Supervisor(cluster, lambda words: console.print(words, highlight=False, soft_wrap=True, markup=False)).run()
    except KeyboardInterrupt:
        console.print("[dim]ending the cluster …[/dim]")
        cluster.stop()


def ps(data_dir: _DataDir = None, json: _Json = False) -> None:
    """Show what runs.

    Examples:
        rsm ps

        rsm ps --data-dir /var/tmp/try --json

    """
    cluster = DevCluster(_resolve(data_dir))
    if json:
        _print_line(_describe(cluster))
    else:
        _print_table(cluster, Console())


def down(data_dir: _DataDir = None, json: _Json = False) -> None:
    """End what `rsm up` started, and nothing else; the data stay.

    Examples:
        rsm down

        rsm down --data-dir /var/tmp/try

    """
    cluster = DevCluster(_resolve(data_dir))
    ended = cluster.stop()
    if json:
        _print_line({"ended": ended, "data_dir": str(cluster.data_dir)})
    else:
        Console().print(f"ended: {', '.join(ended)}" if ended else "nothing ran", highlight=False)


def _resolve(data_dir: Path | None) -> Path:
    return state_folder() / "dev" if data_dir is None else data_dir


def _check_address(address: str | None) -> None:
    if address is None:
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise typer.BadParameter(f"{address!r} is not HOST:PORT, such as 127.0.0.1:2181", param_hint="--zookeeper")


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _print_line(value: object) -> None:
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def _describe(cluster: DevCluster) -> dict[str, object]:
    """Return what outside scripts rely on: the first five keys."""
    pids = cluster.pids()
    not_ready = cluster.not_ready()
    return {
        "ready": all(server.name in pids and server.name not in not_ready for server in cluster.state.wanted()),
        "zookeeper": cluster.zookeeper,
        "metadata_uri": cluster.metadata_uri,
        "bookies": cluster.bookies,
        "pids": pids,
        "data_dir": str(cluster.data_dir),
        "log_key": str(cluster.log_key or ""),
        "not_ready": not_ready,
        "supervisor": cluster.supervisor,
        "restarts": {server.name: server.restart_count for server in cluster.state.wanted()},
        "given_up": [server.name for server in cluster.state.wanted() if server.is_given_up],
    }


def _announce(cluster: DevCluster, data_dir: Path | None, *, json: bool, detach: bool) -> None:
    if json:
        _print_line(_describe(cluster))
        return
    console = Console()
    _print_table(cluster, console)
    option = "" if data_dir is None else escape(f" --data-dir {shlex.quote(str(data_dir))}")
    console.print("\nWhat to type next:", highlight=False)
    if cluster.zookeeper != _ZOOKEEPER_DEFAULT:
        console.print(f"  export RSM_METADATA_URI='{cluster.metadata_uri}'", highlight=False, soft_wrap=True)
    if cluster.log_key is not None:
        console.print(f"  export RSM_LOG_KEY='{escape(str(cluster.log_key))}'", highlight=False, soft_wrap=True)
    console.print("  rsm ledger --help", highlight=False)
    console.print(f"  rsm ps{option}", highlight=False, soft_wrap=True)
    how = f"rsm down{option}" if detach else f"ctrl-C here, or rsm down{option}"
    console.print(f"  {how}   ends the cluster; the data stay", highlight=False, soft_wrap=True)


def _print_table(cluster: DevCluster, console: Console) -> None:
    pids = cluster.pids()
    not_ready = cluster.not_ready()
    table = Table()
    for column in ("server", "address", "pid", "restarts", "state"):
        table.add_column(column, justify="right" if column in ("pid", "restarts") else "left")
    if not cluster.state.owns_zookeeper:
        table.add_row("zookeeper", cluster.zookeeper, "", "", "not ours")
    for server in cluster.state.wanted():
        pid = pids.get(server.name)
        table.add_row(
            server.name,
            server.address,
            "" if pid is None else str(pid),
            str(server.restart_count),
            _how(not_ready.get(server.name, "")) if pid is not None else _why_not(server),
        )
    console.print(table)
    if cluster.supervisor:
        console.print(f"[dim]pid {cluster.supervisor} starts again what ends on its own[/dim]", highlight=False)
    elif pids:
        console.print("[red]nobody starts again what ends on its own[/red]: `rsm up --detach` does", highlight=False)
    console.print(f"[dim]in {escape(str(cluster.data_dir))}[/dim]", highlight=False, soft_wrap=True)


def _how(why_not_ready: str) -> str:
    return f"[red]{escape(why_not_ready)}[/red]" if why_not_ready else "[green]runs[/green]"


def _why_not(server: ServerState) -> str:
    if server.process is None:
        return "stopped"
    return "[red]given up, see its log[/red]" if server.is_given_up else "[red]died[/red]"
