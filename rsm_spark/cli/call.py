"""`rsm call`: one command or query of any service on a log: a typed one with JSON, or text."""

from __future__ import annotations

import base64
import sys
from typing import Annotated, Any

import msgspec
import typer

from ledger.configuration import options_command
from ledger.decoding import convert, json_decoder
from ledger.errors import UsageError
from ledger.options import Option
from rsm_spark.cli.terminal import LogsOptions, print_json, printable, run
from rsm_spark.client.kept_session import KeptSession
from rsm_spark.client.service_client import Reply, ServiceClient
from rsm_spark.core.typed_calls import DESCRIBE, CallShown, json_value


class CallOptions(LogsOptions, frozen=True, kw_only=True):
    """Options of a call."""

    log: Annotated[str, Option("Name of the service's log.", variables=("RSM_LOG",))]
    query: Annotated[bool, Option("Ask a query, which changes nothing, in place of a command.")] = False
    listed: Annotated[bool, Option("Show the typed commands and queries of the service.", name="list")] = False
    replica: Annotated[str | None, Option("Ask this replica, not the leader.", metavar="HOST:PORT")] = None
    timeout_s: Annotated[float, Option("How long to wait for the reply.", name="timeout", ge=0.1, metavar="S")] = 15.0


@options_command
def call(
    at: CallOptions,
    text: Annotated[
        str,
        typer.Argument(help="Name of a typed call, or what is sent; - reads it from standard input.", metavar="TEXT"),
    ] = "",
    arguments: Annotated[
        str | None, typer.Argument(help="Arguments of a typed call by name, as JSON.", metavar="JSON")
    ] = None,
) -> None:
    """Have a service execute a command, once, or answer a query; print its reply.

    Examples:
        rsm call --list --log bank

        rsm call transfer '{"source": "ann", "target": "bob", "amount": 5}' --log bank

        rsm call visits --log counters --query --json

    """
    if not (text or at.listed):
        raise UsageError("rsm call: say what is sent, or --list")
    if at.listed or arguments is not None:
        run(_call_typed(at, text, arguments))
        return
    sent = sys.stdin.buffer.read() if text == "-" else text.encode()

    async def _call() -> Reply:
        async with await _connect(at) as service:
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


async def _connect(at: CallOptions) -> ServiceClient:
    service = await ServiceClient.connect(
        at.log, at.metadata_uri, replica=at.replica, rsm_root=at.rsm_root, timeout_s=at.timeout_s
    )
    service.keep_session(KeptSession.of_user(at.log, at.metadata_uri, at.rsm_root))
    return service


async def _call_typed(at: CallOptions, name: str, arguments: str | None) -> None:
    sent = msgspec.json.encode((name, _arguments(arguments)))
    async with await _connect(at) as service:
        shown = json_value((await service.query(msgspec.json.encode((DESCRIBE, {})))).payload)
        calls = convert(shown, list[CallShown])
        if at.listed:
            _print_calls(at, calls)
            return
        is_query = at.query or any(one.name == name and one.is_query for one in calls)
        reply = await (service.query(sent) if is_query else service.execute(sent))
    value = json_value(reply.payload)
    if at.json:
        print_json({"revision": reply.revision, "reply": value})
    else:
        print_json(value)


def _arguments(text: str | None) -> Any:
    try:
        return json_decoder(dict[str, msgspec.Raw]).decode(text or "{}")
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"""JSON {text}: arguments are an object by name, such as '{{"amount": 5}}': {error}"""
        ) from None


def _print_calls(at: CallOptions, calls: list[CallShown]) -> None:
    if at.json:
        print_json(calls)
        return
    for one in calls:
        typer.echo(printable(f"{'query  ' if one.is_query else 'command'}  {one.signature}"))
        if one.doc:
            typer.echo(printable(f"           {one.doc}"))
