"""`rsm task load`: many tasks from JSON lines."""

from __future__ import annotations

import base64
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec
import typer

from broker.cli.terminal import TenantOptions
from broker.client.blocking import BlockingTransaction, BrokerClient
from broker.client.task import NewTask, TaskOptions, chunks_of
from ledger.configuration import options_command
from ledger.decoding import convert, json_decoder
from ledger.errors import UsageError
from rsm_spark.cli.terminal import print_json

_SHOW_EVERY_S = 0.5


@options_command
def load(
    at: TenantOptions,
    file: Annotated[str, typer.Argument(help="One task a line, as JSON; '-' reads standard input.")],
    batch: Annotated[int, typer.Option("--batch", min=1, max=5000, help="Tasks of one request.")] = 1000,
    whole: Annotated[bool, typer.Option("--whole", help="All of them or none: in one transaction.")] = False,
    request_key: Annotated[
        str, typer.Option("--request-key", help="Loading the same file again with it changes nothing.")
    ] = "",
) -> None:
    """Submit many tasks: the fields of `rsm task submit` by name, `payload` as text or `payload_base64`.

    Examples:
        echo '{"type": "mail", "payload": "to: ada", "priority": 2}' | rsm task load -

        rsm task load tasks.jsonl --whole --json

    """
    if whole and request_key:
        raise UsageError("rsm task load: --whole needs no --request-key: before the commit no task is there")
    with at.connect() as client, _opened(file) as lines:
        tasks = _tasks(lines, file)
        if whole:
            with client.transaction() as transaction:
                counts = _submit(transaction, tasks, batch, "", is_quiet=at.json)
        else:
            counts = _submit(client, tasks, batch, request_key, is_quiet=at.json)
    if at.json:
        print_json({"submitted": counts[0], "refused": counts[1]})
    else:
        refused = f", {counts[1]} refused: their slots are taken" if counts[1] else ""
        typer.echo(f"{counts[0]} tasks submitted{refused}")


def _opened(file: str) -> BinaryIO:
    return sys.stdin.buffer if file == "-" else Path(file).open("rb")


def _tasks(lines: BinaryIO, file: str) -> Iterator[NewTask]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield _task(json_decoder(dict[str, Any]).decode(line))
        except (msgspec.MsgspecError, ValueError) as error:
            raise UsageError(f"{file}, line {number}: {error}") from None


def _task(fields: dict[str, Any]) -> NewTask:
    """Return the task that these fields are.

    Raises:
        ValueError: They are none.

    """
    unknown = sorted(fields.keys() - set(NewTask.__struct_fields__) - {"payload_base64"})
    if unknown:
        raise ValueError(f"a task has no field {unknown[0]!r}")
    payload: bytes | str = fields.pop("payload", "")
    if "payload_base64" in fields:
        payload = base64.b64decode(fields.pop("payload_base64"), validate=True)
    task_type = fields.pop("type", None)
    if not isinstance(task_type, str) or not task_type or not isinstance(payload, bytes | str):
        raise ValueError("a task has a type, and its payload is text")
    return NewTask(task_type, payload, **convert(fields, TaskOptions))


def _submit(
    to: BrokerClient | BlockingTransaction, tasks: Iterator[NewTask], batch: int, request_key: str, *, is_quiet: bool
) -> tuple[int, int]:
    """Submit batch after batch; return how many were taken and how many refused."""
    is_shown = not is_quiet and sys.stderr.isatty()
    taken = refused = 0
    began_s = shown_s = time.monotonic()
    for number, chunk in enumerate(chunks_of(tasks, batch)):
        if isinstance(to, BrokerClient):
            done = to.submit_many(chunk, batch=batch, request_key=f"{request_key}.{number}" if request_key else "")
        else:
            done = to.submit_many(chunk, batch=batch)
        taken += len(done.task_ids) - len(done.refused)
        refused += len(done.refused)
        now_s = time.monotonic()
        if is_shown and now_s - shown_s >= _SHOW_EVERY_S:
            shown_s = now_s
            sys.stderr.write(f"\r\x1b[K{taken:,} tasks, {taken / (now_s - began_s):,.0f}/s")
            sys.stderr.flush()
    if is_shown:
        sys.stderr.write("\r\x1b[K")
    return taken, refused
