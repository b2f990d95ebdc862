"""`rsm node run`: all processes of one machine."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ledger.readiness import Readiness, notify_supervisor
from ledger.telemetry.start import start_from_environment
from rsm_spark.node.settings import NodeSettings, read_node_file

app = typer.Typer(
    no_args_is_help=True,
    help="All processes of one machine.\n\nExample: rsm node run --config /etc/rsm-spark/node.toml",
)

_Config = Annotated[Path, typer.Option("--config", metavar="FILE", help="node.toml: which processes, in which order.")]


@app.command()
def run(
    config: _Config = Path("/etc/rsm-spark/node.toml"),
    json: Annotated[bool, typer.Option("--json", help="Write what changes as JSON, one object a line.")] = False,
) -> None:
    """Run the processes of this machine until SIGTERM.

    They start in the order of the file. What ends on its own is started again. SIGTERM ends them in the opposite order,
    a second one at once. If this process is killed, they end with it. Every change is one line.

    Example:
        rsm node run --config /etc/rsm-spark/node.toml

    """
    settings = read_node_file(config)

    def say(words: str) -> None:
        if json:
            line = msgspec.json.encode({"time": _now(), "node": settings.name, "line": words}).decode()
        else:
            line = f"{_now()} {settings.name or 'node'}: {words}"
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
        notify_supervisor(Readiness(is_ready=True, words=words, pid=os.getpid()))

    asyncio.run(_run(settings, say))


@app.command()
def check(
    config: _Config = Path("/etc/rsm-spark/node.toml"),
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Read the file and those that it names, as `run` would, and say what it would run.

    Example:
        rsm node check --config /etc/rsm-spark/node.toml

    """
    from rsm_spark.cli.config import settings_of  # noqa: PLC0415 - it imports each command that the file names

    settings = read_node_file(config)
    for one in settings.process:
        settings_of(one.kind, Path(one.conf))
    if json:
        typer.echo(msgspec.json.encode([msgspec.to_builtins(one) for one in settings.process]).decode())
        return
    for one in settings.process:
        typer.echo(f"{one.name}: {one.kind}, as {one.conf} says")


async def _run(settings: NodeSettings, say: Callable[[str], object]) -> None:
    from ledger.audit_lines import Refusals  # noqa: PLC0415 - `check` serves nothing
    from ledger.http.metrics_push import push_metrics  # noqa: PLC0415
    from ledger.process_guard import ProcessGuard  # noqa: PLC0415
    from rsm_spark.node.node import NodeRunner  # noqa: PLC0415
    from rsm_spark.node.pages import NodePages  # noqa: PLC0415

    start_from_environment("rsm-node")
    node = NodeRunner(settings, say)
    with ProcessGuard("node", stop_s=None, on_signal=node.stop) as guard:
        server = None
        refusals = Refusals()
        pages = NodePages(settings.name, node, refusals)
        push_metrics(pages.metrics)
        if settings.http_port is not None:
            server = settings.door().server(pages.routes(), refusals)
            await server.start()
            say(f"HTTP on {server.address}")
        try:
            await node.run(guard)
        finally:
            if server is not None:
                await server.stop()
            say("all processes have ended")


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
