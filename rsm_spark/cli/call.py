"""`rsm call`: one command or query of any service on a log, as text."""

from __future__ import annotations

import base64
import sys
from typing import Annotated

import typer

from ledger.configuration import options_command
from ledger.options import Option
from rsm_spark.cli.terminal import LogsOptions, print_json, run
from rsm_spark.client.service_client import Reply, ServiceClient


class CallOptions(LogsOptions, frozen=True, kw_only=True):
    """Options of a call."""

    log: Annotated[str, Option("Name of the service's log.", variables=("RSM_LOG",))]
    query: Annotated[bool, Option("Ask a query, which changes nothing, in place of a command.")] = False
    replica: Annotated[str | None, Option("Ask this replica, not the leader.", metavar="HOST:PORT")] = None
    timeout_s: Annotated[float, Option("How long to wait for the reply.", name="timeout", ge=0.1, metavar="S")] = 15.0


@options_command
def call(
    text: Annotated[str, typer.Argument(help="What is sent; - reads it from standard input.", metavar="TEXT")],
    at: CallOptions,
) -> None:
    """Have a service execute a command, once, or answer a query; print its reply.

    Examples:
        rsm call visits --log counters

        rsm call visits --log counters --query --json

    """
    sent = sys.stdin.buffer.read() if text == "-" else text.encode()

    async def _call() -> Reply:
        async with await ServiceClient.connect(
            at.log, at.metadata_uri, replica=at.replica, rsm_root=at.rsm_root, timeout_s=at.timeout_s
        ) as service:
            return await (service.query(sent) if at.query else service.execute(sent))

    reply = run(_call())
    if not at.json:
        sys.stdout.buffer.write(reply.payload + b"\n")
        return
    try:
        shown = {"reply": reply.payload.decode()}
    except UnicodeDecodeError:
        shown = {"reply_base64": base64.b64encode(reply.payload).decode()}
    print_json({"revision": reply.revision, **shown})
