"""`rsm task`: submit tasks, look at them, wait for them, cancel them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from broker.cli import task_bulk as task_bulk_cli
from broker.cli import task_change as task_change_cli
from broker.cli import task_wait as task_wait_cli
from broker.cli.terminal import BrokerOptions, TenantOptions, amounts, to_json
from broker.client.task import NewTask
from broker.client.task_calls import result_of
from ledger.configuration import options_command
from ledger.errors import UsageError
from rsm_spark.cli.terminal import ago, key_bytes, print_json, print_result, print_rows, printable

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Submit tasks, look at them, wait for them, cancel them.",
    pretty_exceptions_enable=False,
)

_TaskId = Annotated[int, typer.Argument(help="Id of the task.", min=1)]
_Resources = Annotated[list[str] | None, typer.Option("--resource", metavar="NAME=AMOUNT", help="Held while it runs.")]


@app.command()
@options_command
def submit(
    at: TenantOptions,
    type: Annotated[str, typer.Argument(help="Workers are chosen by it.")],  # noqa: A002 - what it is called everywhere
    payload: Annotated[str, typer.Argument(help="Text; '-' reads standard input.")] = "",
    priority: Annotated[int | None, typer.Option("--priority", help="Among the tenant's own, higher first.")] = None,
    group: Annotated[int | None, typer.Option("--group", help="Of workers' preferences.")] = None,
    resources: _Resources = None,
    slot: Annotated[str, typer.Option("--slot", help="Refused while another task that has not ended has it.")] = "",
    key: Annotated[str, typer.Option("--key", help="By which tasks may be held back.")] = "",
    delay: Annotated[float, typer.Option("--delay", min=0, help="Not before so many seconds from now.")] = 0,
    ttl: Annotated[float, typer.Option("--ttl", min=0, help="An error if it has not ended in so many seconds.")] = 0,
    run_limit: Annotated[float, typer.Option("--run-limit", min=0, help="Seconds of the longest run.")] = 0,
    heartbeat: Annotated[float, typer.Option("--heartbeat", min=0, help="Seconds without a sign of life.")] = 0,
    attempts: Annotated[int | None, typer.Option("--attempts", min=0, help="Runs at most; 0 = unlimited.")] = None,
    at_most_once: Annotated[bool, typer.Option("--at-most-once", help="Never run it again.")] = False,
    code: Annotated[str, typer.Option("--code", help="Code pool that it needs.")] = "",
    mode: Annotated[str, typer.Option("--mode", help="How that is entered.")] = "",
    request_key: Annotated[str, typer.Option("--request-key", help="Submitting again with it changes nothing.")] = "",
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end and print its result.")] = False,
    limit: Annotated[
        float | None, typer.Option("--for", min=0, help="With --wait: seconds at most.", show_default="for ever")
    ] = None,
) -> None:
    """Submit a task, once, whatever fails meanwhile; print its id.

    Examples:
        rsm task submit mail "to: ada" --tenant acme

        rsm task submit train - --resource gpu=1 --priority 5 --wait --for 600 < settings.json

        rsm task submit nightly --slot nightly --delay 3600

    """
    if limit is not None and not wait:
        raise UsageError("rsm task submit --for: says how long --wait waits, and that is not given")
    content = sys.stdin.buffer.read() if payload == "-" else key_bytes(payload)
    task = NewTask(
        type, content, at_most_once, attempts, priority, group, amounts(resources or [], "--resource"), slot, key,
        0, delay, 0, ttl, run_limit, heartbeat, code, mode,
    )  # fmt: skip
    with at.connect() as client:
        task_id = client.submit(task, request_key=request_key)
        if not wait:
            print_result(at.json, {"task_id": task_id}, str(task_id))
            return
        ended = task_wait_cli.wait_shown(client, [task_id], limit, is_quiet=at.json)[0]
    if at.json:
        print_json(to_json(ended))
    if ended.status != "finished":
        result_of(ended)
    if not at.json:
        sys.stdout.buffer.write(ended.result_bytes + (b"\n" if sys.stdout.isatty() else b""))


@app.command()
@options_command
def get(
    at: TenantOptions,
    task_id: _TaskId,
    result: Annotated[bool, typer.Option("--result", help="Only its result, as it is.")] = False,
) -> None:
    """Show a task.

    Examples:
        rsm task get 4711

        rsm task get 4711 --result > picture.png

    """
    with at.connect() as client:
        task = client.get(task_id)
    if result:
        sys.stdout.buffer.write(result_of(task) if task.has_ended else b"")
        if not task.has_ended:
            typer.echo(f"rsm: task {task_id} is {task.status}: it has no result yet", err=True)
            raise typer.Exit(1)
        return
    if at.json:
        print_json(to_json(task))
        return
    shown = {name: value for name, value in to_json(task).items() if value not in ("", 0, {}, False, -1.0)}
    for name, value in shown.items():
        time = f"  ({ago(value)} ago)" if name.endswith("_ms") and isinstance(value, int) and value > 1e12 else ""
        typer.echo(f"{name:<16} {printable(value)[:2_000]}{time}")


@app.command("list")
@options_command
def list_tasks(
    at: TenantOptions,
    status: Annotated[
        str, typer.Option("--status", help="waiting, delayed, running, finished, error, cancelled; with commas.")
    ] = "",
    type: Annotated[str, typer.Option("--type", help="Only of this type.")] = "",  # noqa: A002
    worker: Annotated[str, typer.Option("--worker", help="Only those of this worker.")] = "",
    slot: Annotated[str, typer.Option("--slot", help="Only the one with this slot.")] = "",
    key: Annotated[str, typer.Option("--key", help="Only with this key.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 100,
    oldest: Annotated[bool, typer.Option("--oldest", help="Oldest first instead of newest.")] = False,
) -> None:
    """List tasks, newest first.

    Examples:
        rsm task list --status running,waiting

        rsm task list --type mail --limit 1000 --json

    """
    with at.connect() as client:
        tasks = client.tasks(
            status=status, type=type, worker=worker, slot=slot, key=key, count=limit,
            order="oldest" if oldest else "newest",
        )  # fmt: skip
        if at.json:
            for task in tasks:
                print_json(to_json(task))
            return
        rows = [
            (t.task_id, t.status, t.tenant, t.type, t.attempts, ago(t.created_ms), t.worker_id or "-", t.error or "")
            for t in tasks
        ]
    titles = ("id", "status", "tenant", "type", "attempts", "age", "worker", "error")
    print_rows(titles, [(*row[:7], row[7][:60]) for row in rows], right=(0, 4))


@app.command()
@options_command
def explain(
    at: TenantOptions,
    task_id: _TaskId,
) -> None:
    """Say why a task is where it is: the exact limit, or its place.

    Examples:
        rsm task explain 4711

    """
    with at.connect() as client:
        found = client.explain(task_id)
    if at.json:
        print_json({"task_id": task_id, **to_json(found)})
        return
    place = f"; {found.place} of its tenant's tasks are before it" if found.place >= 0 else ""
    typer.echo(f"{found.status}: {printable(found.text or found.reason)} ({found.reason}){place}")


@app.command()
@options_command
def overview(
    at: TenantOptions,
) -> None:
    """Count tasks by status and type.

    Examples:
        rsm task overview

        rsm task overview --tenant acme --json

    """
    with at.connect() as client:
        found = client.overview()
    if at.json:
        print_json(to_json(found))
        return
    counts = ", ".join(f"{count:,} {status}" for status, count in found.by_status.items()) or "no tasks"
    typer.echo(f"{counts}; {found.threads} threads on {found.workers_by_status.get('connected', 0)} workers")
    statuses = list(found.by_status)
    rows = [(one.type, *(f"{one.by_status.get(status, 0):,}" for status in statuses)) for one in found.types]
    if rows:
        print_rows(("type", *statuses), rows, right=range(1, len(statuses) + 1))


@app.command()
@options_command
def workers(
    at: TenantOptions,
) -> None:
    """List workers.

    Examples:
        rsm task workers

    """
    with at.connect() as client:
        found = client.workers()
    if at.json:
        for worker in found:
            print_json(to_json(worker))
        return
    rows = [
        (w.worker_id, w.status, f"{w.running} / {w.offer.threads_max}", ago(w.connected_ms), w.location) for w in found
    ]
    print_rows(("worker", "status", "running", "connected", "location"), rows, right=(2,))


@app.command()
@options_command
def deploy(
    at: BrokerOptions,
    path: Annotated[Path, typer.Argument(help="A folder, package or module.")],
    entry: Annotated[
        list[str] | None,
        typer.Option(
            "--entry",
            metavar="MODULE:FUNCTION",
            help="What tasks may call; may be given several times.",
            show_default="as rsm-pool.toml in the folder says",
        ),
    ] = None,
    network: Annotated[bool, typer.Option("--network", help="With --entry: the code needs the network.")] = False,
    name: Annotated[
        str, typer.Option("--name", help="Of the code pool.", show_default="made of path and content")
    ] = "",
    ttl: Annotated[float, typer.Option("--ttl", min=0, help="Seconds until it may go; 0 = it stays.")] = 0,
) -> None:
    """Deploy code for workers; print the name that tasks give as --code.

    Examples:
        rsm task deploy ./handlers.py --entry handlers:resize

        rsm task deploy ./mails

    """
    with at.connect() as client:
        code = client.deploy_code(path, entries=entry or (), network=network, name=name, ttl_s=ttl)
    print_result(at.json, {"code": code}, code)


app.command()(task_bulk_cli.load)
app.command()(task_wait_cli.wait)
app.command()(task_change_cli.cancel)
app.command()(task_change_cli.change)
app.command()(task_change_cli.replay)
app.command()(task_change_cli.delete)
