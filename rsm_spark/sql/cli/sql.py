"""`rsm sql`: replicated SQL tables from the command line."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from ledger.configuration import options_command, process_command
from ledger.errors import LedgerError, UsageError
from ledger.http.settings import HttpPortSettings
from ledger.rights.scram import SALT_BYTES, ScramVerifier
from ledger.rights.token_file import read_tokens
from rsm_spark.cli.terminal import print_json, run
from rsm_spark.errors import RsmError
from rsm_spark.server.process import ReadyNotice, run_replica
from rsm_spark.server.replica_options import ReplicaOptions
from rsm_spark.server.replica_server import StoreSettings
from rsm_spark.sql.cli.exporting import dump, export_file
from rsm_spark.sql.cli.importing import import_file
from rsm_spark.sql.cli.printing import ResultWriter
from rsm_spark.sql.cli.sql_options import SqlOptions
from rsm_spark.sql.cli.statement_runner import ScriptRunner
from rsm_spark.sql.cli.tailing import tail
from rsm_spark.sql.limits import SqlSettings
from rsm_spark.sql.pg_settings import PgSettings
from rsm_spark.sql.statement_words import reads_only

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Serve replicated SQL tables; run statements and scripts; import and export tables; follow their changes.",
    pretty_exceptions_enable=False,
)


app.command(name="import")(import_file)
app.command(name="export")(export_file)
app.command()(dump)
app.command()(tail)


class SqlServeOptions(ReplicaOptions, frozen=True, kw_only=True):
    """All that `rsm sql serve` takes."""

    store: StoreSettings
    sql: SqlSettings = SqlSettings()
    pg: PgSettings = PgSettings()
    probes: HttpPortSettings = HttpPortSettings()


@app.command()
@process_command("sql")
def serve(given: SqlServeOptions) -> None:
    """Run a replica of SQL tables until ctrl-C or SIGTERM; two or more of them make the tables highly available.

    Examples:
        rsm sql serve --log shop --data-dir /var/lib/shop-a

        rsm sql serve --log shop --data-dir /var/lib/shop-b --bookies 3/3/2 --http-port 8080 --json

        rsm sql serve --log shop --data-dir /var/lib/shop-c --pg-port 5432

    """
    from rsm_spark.sql.service import SqlService  # noqa: PLC0415 - clients need no SQLite

    given.begin()
    settings = given.complete(given.store)
    run_replica(
        given,
        settings,
        lambda client, lake: SqlService(client, settings, given.sql, lake, given.pg),
        _ready_words,
        given.probes,
    )


def _ready_words(notice: ReadyNotice) -> str:
    pg = f", for PostgreSQL's clients on {notice.pg_address}" if notice.pg_address else ""
    return f"replica {notice.replica_id} of tables {notice.log} serves on {notice.address}{pg}, ctrl-C ends it"


@app.command()
@options_command
def verifier(
    token_file: Annotated[Path, typer.Argument(help="File with the token in one line.", metavar="TOKEN_FILE")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print how a server verifies a token by SCRAM: `scram = "…"` of a principal, for PostgreSQL's clients.

    Examples:
        rsm sql verifier /etc/rsm-spark/ann.token

        rsm sql verifier ann.token --json

    """
    found = str(ScramVerifier.of_secret(read_tokens(str(token_file))[0].encode(), os.urandom(SALT_BYTES)))
    if json:
        print_json({"scram": found})
    else:
        typer.echo(found)


@app.command(name="exec")
@options_command
def execute(at: SqlOptions, sql: Annotated[str, typer.Argument(help="One statement.", metavar="SQL")]) -> None:
    """Run one statement; print its rows, or how many it changed.

    Examples:
        rsm sql exec "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT)" --log shop

        rsm sql exec "SELECT * FROM item" --log shop --json

    """
    printer = ResultWriter(as_json=at.json)

    async def _execute() -> None:
        async with await at.connect_once() as client:
            if reads_only(sql):
                printer.rows(await client.query(sql))
            else:
                printer.outcome(await client.transaction([sql]))

    run(_execute())


@app.command()
@options_command
def script(
    at: SqlOptions,
    file: Annotated[Path, typer.Argument(help="File of statements, each ended by a semicolon.")],
    together: Annotated[bool, typer.Option("--together", help="All as one transaction.")] = False,
) -> None:
    """Run the statements of a file, each as a transaction of its own; the first that fails ends it.

    Statements between BEGIN and COMMIT are one transaction, which may read what it wrote before it is committed.

    Examples:
        rsm sql script schema.sql --log shop

        rsm sql script move.sql --log shop --together

    """
    from rsm_spark.sql.engine.scripts import split_script  # noqa: PLC0415 - SQLite itself knows where one ends

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: {error}") from None
    statements = split_script(text)

    async def _run() -> None:
        async with await at.connect() as client:
            if together:
                ResultWriter(as_json=at.json).outcome(await client.transaction(statements))
                return
            runner = ScriptRunner(client, ResultWriter(as_json=at.json), "the script")
            try:
                for statement in statements:
                    await runner.run(statement)
                runner.check_outside()
            finally:
                await runner.close()

    run(_run())


@app.command()
@options_command
def shell(at: SqlOptions) -> None:
    r"""Type statements, and see what they do; with history and completion at a terminal, else from standard input.

    Statements end with a semicolon; BEGIN, COMMIT and ROLLBACK stand among them. `.help` says what the shell itself
    knows: `.tables`, `.schema`, `.timing`, `\watch`.

    Examples:
        rsm sql shell --log shop

        echo "SELECT count(*) FROM item;" | rsm sql shell --log shop --json

    """
    from rsm_spark.sql.cli.shell import SqlShell  # noqa: PLC0415 - SQLite itself knows where a statement ends
    from rsm_spark.sql.cli.shell_input import converse, read_all  # noqa: PLC0415

    async def _run() -> None:
        async with await at.connect() as client:
            told = SqlShell(client, ResultWriter(as_json=at.json))
            try:
                if sys.stdin.isatty():
                    await converse(told, _complain)
                else:
                    await read_all(told)
            finally:
                await told.close()

    run(_run())


def _complain(error: Exception) -> None:
    """Tell a person of an error, and go on.

    Raises:
        Exception: It is none of a statement.

    """
    if not isinstance(error, LedgerError | RsmError):
        raise error
    typer.echo(f"{error}", err=True)
