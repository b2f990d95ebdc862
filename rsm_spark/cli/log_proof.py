"""`rsm log verify` and `rsm log quarantine`: whose word the entries of a log are, and what is none of its leaders'."""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ledger.configuration import options_command
from ledger.errors import UsageError
from ledger.operator_commands import AuditOptions, audited_command, this_operator
from rsm_spark.cli.terminal import LogArgument, LogsOptions, print_json, run
from rsm_spark.core.chain import QuarantinedEntry
from rsm_spark.errors import LogError
from rsm_spark.log.authorship import Authorship, verify_authorship
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.key_file import KeyFile, read_public_keys
from rsm_spark.log.quarantine import quarantine_entry

_LogKey = Annotated[
    Path | None, typer.Option("--log-key", metavar="FILE", envvar="RSM_LOG_KEY", help="Key file of the log.")
]


@options_command
def verify(
    log: LogArgument,
    at: LogsOptions,
    public_key: Annotated[
        Path,
        typer.Option("--public-key", metavar="FILE", help="What rsm log key show-public printed; your own copy of it."),
    ],
    log_key: _LogKey = None,
) -> None:
    """Prove who wrote a log: its entries continue each other, its checkpoints are signed by the key's owner.

    Exit code 1 if an entry or a signature is not what it must be, or if nothing is signed by the given keys.

    Examples:
        rsm log verify orders --public-key orders.pub

    """

    async def _verify() -> Authorship:
        public_keys = read_public_keys(public_key)
        keys = None if log_key is None else KeyFile.read(log_key)
        async with await at.connect_ledgers() as client:
            return await verify_authorship(client, log, public_keys, rsm_root=at.rsm_root, keys=keys)

    found = run(_verify())
    if at.json:
        print_json(msgspec.to_builtins(found))
    else:
        _print(found)
    if not found.signatures:
        raise typer.Exit(1)


def _print(found: Authorship) -> None:
    typer.echo(f"log {found.log}, id {found.log_id}: revisions {found.first_revision} to {found.last_revision}")
    typer.echo(f"  {found.entries} entries continue each other; hash after the last one {found.prefix_hash}")
    if found.signatures:
        typer.echo(f"  {found.signatures} checkpoints are signed: written by the key's owner up to revision ", nl=False)
        typer.echo(f"{found.proven_revision}, whose hash is {found.proven_hash}")
    else:
        typer.echo("  no checkpoint is signed by these keys: nothing proves who wrote the log")
    for key_id in found.unknown_keys:
        typer.echo(f"  key {key_id} signed too, but is not in the file")
    if found.quarantined:
        typer.echo(f"  {found.quarantined} entries are set aside: rsm log info {found.log} --json")


@options_command
def quarantine(
    log: LogArgument,
    at: LogsOptions,
    audit: AuditOptions,
    ledger: Annotated[int, typer.Option("--ledger", min=0, help="Ledger of the entry.")],
    entry: Annotated[int, typer.Option("--entry", min=0, help="The entry.")],
    reason: Annotated[str, typer.Option("--reason", help="Why; kept in the chain.")],
    evidence: Annotated[
        Path | None,
        typer.Option("--evidence", metavar="FILE", help="Keep its bytes here.", show_default="in this folder"),
    ] = None,
    log_key: _LogKey = None,
    unknown_key: Annotated[
        bool, typer.Option("--unknown-key", help="The key that sealed it is none of this log's: you have looked.")
    ] = False,
) -> None:
    """Set an entry aside that no leader of the log wrote; all readers pass over it, and the log goes on.

    The bytes are kept in a file, their hash in the chain, with who did it and why; the next leader logs that. An entry
    that is the log's own is refused. Then start the replicas again.

    Examples:
        rsm log quarantine orders --ledger 17 --entry 4211 --reason "forged on bookie 2" --log-key orders.key

    """

    async def _quarantine() -> tuple[QuarantinedEntry, str]:
        keys = None if log_key is None else KeyFile.read(log_key)
        wanted = QuarantinedEntry(
            ledger, entry, "", 0, time.time_ns() // 1_000_000, by.name, reason, zookeeper=by.zookeeper
        )
        async with await at.connect_ledgers() as client:
            return await quarantine_entry(
                client,
                ChainStore(client.store, log, at.rsm_root),
                wanted,
                incarnation=secrets.token_hex(16),
                keep=lambda payload: _keep(kept, payload),
                keys=keys,
                accept_unknown_key=unknown_key,
            )

    kept = evidence or Path(f"quarantined-{log}-{ledger}-{entry}.bin")
    by = this_operator(reason)
    with audited_command(audit.audit_file, "rsm log quarantine", f"log {log}: ledger {ledger} entry {entry}", by):
        aside, wrong = run(_quarantine())
    if at.json:
        print_json({"log": log, **msgspec.to_builtins(aside), "wrong": wrong, "evidence": str(kept) if wrong else ""})
    elif wrong:
        typer.echo(f"log {log}: ledger {ledger} entry {entry} is set aside: {wrong}. Its bytes are in {kept}")
    else:
        typer.echo(f"log {log}: ledger {ledger} entry {entry} was set aside before: {aside.reason}")


def _keep(path: Path, payload: bytes) -> None:
    """Keep evidence on the disk, for the owner alone; never over something else."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        if path.read_bytes() == payload:
            return  # Of an attempt before.
        raise LogError(f"{path} is there already, and is something else: --evidence FILE") from None
    except OSError as error:
        raise UsageError(f"--evidence {path}: {error.strerror}") from None
    with os.fdopen(handle, "wb") as file:
        file.write(payload)
        file.flush()
        os.fsync(file.fileno())
