"""`rsm log key new | rotate | show-public | adopt`: the key of a log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ledger.cluster_options import Json
from ledger.configuration import options_command
from ledger.operator_commands import AuditOptions, audited_command, this_operator
from rsm_spark.cli.log_requests import OrderOptions, give_order
from rsm_spark.cli.terminal import LogArgument, LogsOptions, print_result
from rsm_spark.log.admin_requests import AdoptKeyRequest
from rsm_spark.log.key_file import new_key, public_file, read_key_file, write_key_file

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Make and change the key of a log.",
    pretty_exceptions_enable=False,
)


class KeyFileOptions(AuditOptions, frozen=True, kw_only=True):
    """Options of a command that writes a key file."""

    json: Json = False


_File = Annotated[Path, typer.Option("--file", metavar="FILE", help="The key file; for its owner alone, mode 0600.")]


@app.command()
@options_command
def new(file: _File, how: KeyFileOptions) -> None:
    """Make a key file. Give it to every replica of the log (--log-key FILE), and to nobody who may not write the log.

    Examples:
        rsm log key new --file /etc/rsm-spark/orders.key

    """
    key = new_key()
    with audited_command(how.audit_file, "rsm log key new", f"key {key.id} in {file}", this_operator()):
        write_key_file(file, [key], replace=False)
    print_result(how.json, {"file": str(file), "key_id": key.id}, f"key {key.id} in {file}")


@app.command()
@options_command
def rotate(
    file: _File,
    keep: Annotated[
        int | None,
        typer.Option("--keep", min=0, help="Older keys to keep; drop none that a ledger of the log is still of."),
    ] = None,
    *,
    how: KeyFileOptions,
) -> None:
    """Add a newer key to a key file. Then hand the file round: entries are sealed with it once every replica has it.

    Replicas read the file again by themselves, within seconds.

    Examples:
        rsm log key rotate --file /etc/rsm-spark/orders.key

    """
    old = read_key_file(file)
    key = new_key()
    kept = old if keep is None else old[len(old) - keep :] if keep < len(old) else old
    dropped = " ".join(one.id for one in old if one not in kept)
    target = f"key {key.id} in {file}{f', without {dropped}' if dropped else ''}"
    with audited_command(how.audit_file, "rsm log key rotate", target, this_operator()):
        write_key_file(file, [*kept, key], replace=True)
    print_result(
        how.json,
        {"file": str(file), "key_id": key.id, "kept": [one.id for one in kept]},
        f"key {key.id} in {file}, behind {len(kept)} older ones",
    )


@app.command("show-public")
def show_public(file: _File) -> None:
    """Print the public keys of a key file, for auditors: rsm log verify --public-key takes what this prints.

    Examples:
        rsm log key show-public --file /etc/rsm-spark/orders.key > orders.pub

    """
    typer.echo(public_file(read_key_file(file)).decode(), nl=False)


@app.command()
@options_command
def adopt(
    log: LogArgument,
    at: LogsOptions,
    order: OrderOptions,
) -> None:
    """Give a log of before a key, once every replica runs with --log-key. From then on every entry is sealed.

    There is no way back. What was written before stays as it is, without a seal.

    Examples:
        rsm log key adopt orders

    """
    answer = give_order(log, AdoptKeyRequest(), at, order, "rsm log key adopt")
    print_result(
        at.json, {"log": log, **answer}, f"log {log}: entries are sealed with key {answer['key_id']} from now on"
    )
