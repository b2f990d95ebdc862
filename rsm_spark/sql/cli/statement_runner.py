"""Runs statements one after the other, as a script or a person gives them: BEGIN … COMMIT among them."""

from __future__ import annotations

from ledger.errors import UsageError
from rsm_spark.sql.cli.printing import ResultWriter
from rsm_spark.sql.client.client import SqlClient, SqlOutcome
from rsm_spark.sql.client.transaction import InteractiveTransaction
from rsm_spark.sql.statement_words import TransactionWord, reads_only, transaction_word


class ScriptRunner:
    """See the module.

    Args:
        client: Connected.
        printer: Of results.
        who: Names what gives the statements, in complaints: "the script".

    """

    def __init__(self, client: SqlClient, printer: ResultWriter, who: str) -> None:
        self._client = client
        self._printer = printer
        self._who = who
        self._transaction: InteractiveTransaction | None = None

    @property
    def is_inside(self) -> bool:
        """A transaction was begun, and is not over."""
        return self._transaction is not None

    async def run(self, statement: str) -> None:
        """Run one, and print what comes of it.

        Raises:
            SqlError: It failed.
            UsageError: It begins a transaction in another one, or ends one that was not begun.

        """
        transaction = self._transaction
        match transaction_word(statement):
            case TransactionWord.NOTHING if transaction is not None:
                try:
                    result = await transaction.execute(statement)
                finally:
                    if transaction.is_over:
                        self._transaction = None
                self._printer.outcome(SqlOutcome((result,), transaction.revision))
            case TransactionWord.NOTHING if reads_only(statement):
                async with await self._client.rows(statement) as rows:
                    await self._printer.stream(rows)
            case TransactionWord.NOTHING:
                self._printer.outcome(await self._client.transaction([statement]))
            case TransactionWord.BEGIN if transaction is None:
                self._transaction = await self._client.begin()
            case TransactionWord.COMMIT if transaction is not None:
                self._transaction = None
                await transaction.commit()
            case TransactionWord.ROLLBACK if transaction is not None:
                self._transaction = None
                await transaction.rollback()
            case word:
                inside = "in one already" if transaction is not None else "in none"
                raise UsageError(f"{word.upper()}: {self._who} is {inside}")

    def check_outside(self) -> None:
        """Complain of a transaction that was begun and not ended.

        Raises:
            UsageError: There is one.

        """
        if self._transaction is not None:
            raise UsageError(f"{self._who} ends inside a transaction, of which nothing was done: COMMIT is missing")

    async def close(self) -> None:
        """Roll back what is open."""
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            await transaction.rollback()
