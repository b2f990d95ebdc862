"""`rsm sql`: replicated SQL tables from the command line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ledger.configuration import options_command, process_command
from ledger.errors import UsageError
from ledger.http.settings import HttpPortSettings
from ledger.options import Option
from ledger.rights.scram import SALT_BYTES, ScramVerifier
from ledger.rights.token_file import read_tokens
from rsm_spark.cli.terminal import LogsOptions, print_json, printable, run, shown
from rsm_spark.server.process import ReadyNotice, run_replica
from rsm_spark.server.replica_options import ReplicaOptions
from rsm_spark.server.replica_server import StoreSettings
from rsm_spark.sql.client.client import SqlClient, SqlOutcome, SqlRows
from rsm_spark.sql.client.transaction import InteractiveTransaction
from rsm_spark.sql.limits import SqlSettings
from rsm_spark.sql.pg_settings import PgSettings
from rsm_spark.sql.statement_words import TransactionWord, reads_only, transaction_word

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Serve replicated SQL tables; run statements and scripts.",
    pretty_exceptions_enable=False,
)


class SqlServeOptions(ReplicaOptions, frozen=True, kw_only=True):
    """All that `rsm sql serve` takes."""

    store: StoreSettings
    sql: SqlSettings = SqlSettings()
    pg: PgSettings = PgSettings()
    probes: HttpPortSettings = HttpPortSettings()


class SqlOptions(LogsOptions, frozen=True, kw_only=True):
    """Options of a command for the tables of one log."""

    log: Annotated[str, Option("Name of the log.", variables=("RSM_LOG",))]
    replica: Annotated[
        str | None, Option("Read from this replica, at the revision that it has.", metavar="HOST:PORT")
    ] = None
    timeout_s: Annotated[float, Option("Seconds to wait for a leader.", name="timeout", ge=0.01)] = 15.0

    async def connect(self) -> SqlClient:
        """Return a connected client."""
        return await SqlClient.connect(
            self.log, self.metadata_uri, replica=self.replica, rsm_root=self.rsm_root, timeout_s=self.timeout_s
        )


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

    async def _execute() -> None:
        async with await at.connect() as client:
            if reads_only(sql):
                _print_rows(at, await client.query(sql))
            else:
                _print_outcome(at, await client.transaction([sql]))

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
                _print_outcome(at, await client.transaction(statements))
                return
            await _run_script(at, client, statements)

    run(_run())


async def _run_script(at: SqlOptions, client: SqlClient, statements: Sequence[str]) -> None:
    transaction: InteractiveTransaction | None = None
    try:
        for statement in statements:
            match transaction_word(statement):
                case TransactionWord.NOTHING if transaction is not None:
                    _print_outcome(at, SqlOutcome((await transaction.execute(statement),), transaction.revision))
                case TransactionWord.NOTHING if reads_only(statement):
                    _print_rows(at, await client.query(statement))
                case TransactionWord.NOTHING:
                    _print_outcome(at, await client.transaction([statement]))
                case TransactionWord.BEGIN if transaction is None:
                    transaction = await client.begin()
                case TransactionWord.COMMIT if transaction is not None:
                    await transaction.commit()
                    transaction = None
                case TransactionWord.ROLLBACK if transaction is not None:
                    await transaction.rollback()
                    transaction = None
                case word:
                    inside = "in one already" if transaction is not None else "in none"
                    raise UsageError(f"{word.upper()}: the script is {inside}")
        if transaction is not None:
            raise UsageError("the script ends inside a transaction, of which nothing was done: COMMIT is missing")
    finally:
        if transaction is not None:
            await transaction.rollback()


def _print_outcome(at: SqlOptions, outcome: SqlOutcome) -> None:
    for result in outcome.results:
        if result.columns:
            _print_rows(at, SqlRows(result.columns, result.rows, outcome.revision))
        elif at.json:
            document = {"row_count": result.row_count, "last_rowid": result.last_rowid, "revision": outcome.revision}
            print_json(document)
        else:
            typer.echo(f"{result.row_count} rows changed; revision {outcome.revision}")


def _print_rows(at: SqlOptions, rows: SqlRows) -> None:
    names = [name for name, _ in rows.columns]
    if at.json:
        print_json({"columns": names, "rows": shown(rows.rows), "revision": rows.revision})
        return
    lines = [[_text(value) for value in row] for row in (names, *rows.rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(names))]
    for line in lines:
        typer.echo("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def _text(value: Any) -> str:
    if value is None:
        return "NULL"
    return f"x'{value.hex()}'" if isinstance(value, bytes) else printable(value)
