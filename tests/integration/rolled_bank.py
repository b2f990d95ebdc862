"""A bank in three releases, for `rsm serve tests.integration.rolled_bank:Bank1`; two that cannot go on with its log.

A command is "account number", or "account number email": the account's number-th. What is logged names account and
number, so that the log shows how often a command was applied; the reply is how many of the account were.
"""

from __future__ import annotations

from typing import ClassVar

from rsm_spark import Decision, Field, FieldType, MachineDescription, TableDescription, TableMachine, upsert

PAID, NOTED = 16, 17
INT, STR = FieldType.INT, FieldType.STR
_NAME = (Field("account", STR),)
_NUMBER = Field("number", INT)
_NOTES = TableDescription("notes", _NAME, (_NUMBER,))


def _bank(version: int, *columns: Field) -> MachineDescription:
    accounts = TableDescription("accounts", _NAME, (_NUMBER, *columns))
    paid = upsert(PAID, "paid", accounts)
    if version < 3:
        return MachineDescription("bank", version, (accounts,), (paid,))
    return MachineDescription("bank", version, (accounts, _NOTES), (paid, upsert(NOTED, "noted", _NOTES)))


class Bank1(TableMachine):
    """The first release."""

    description: ClassVar = _bank(1, Field("count", INT))

    def decide(self, command: bytes, revision: int, now_ms: int) -> Decision:
        account, number, *email = command.decode().split()
        columns = self.description.tables[0].row
        row = list(self.get("accounts", account) or (0, 0, *(column.default for column in columns[2:])))
        row[0], row[1] = int(number), row[1] + 1
        if email and len(row) > 2:
            row[2] = email[0]
        return Decision([(PAID, (account, *row)), *self.more(account, int(number))], b"%d" % row[1])

    def more(self, _account: str, _number: int) -> list[tuple[int, tuple[object, ...]]]:
        """Return what only this release logs."""
        return []

    def query(self, query: bytes, revision: int) -> bytes:
        found = self.get("accounts", query.decode())
        return b"0" if found is None else b"%d" % found[1]


class Bank2(Bank1):
    """The second: accounts have an email."""

    description: ClassVar = _bank(2, Field("count", INT), Field("email", STR, nullable=True))


class Bank3(Bank1):
    """The third: the count has another name, accounts have a limit, and each tenth payment is noted."""

    description: ClassVar = _bank(
        3, Field("times", INT, was=("count",)), Field("email", STR, nullable=True), Field("limit", INT, default=100)
    )

    def more(self, account: str, number: int) -> list[tuple[int, tuple[object, ...]]]:
        return [(NOTED, (account, number))] if number % 10 == 0 else []


class Rigid:
    """The first release, of a service that cannot follow a later one: no `TableMachine`, and without `follow`."""

    def __init__(self) -> None:
        bank = Bank1()
        self.description = bank.description
        self.decide, self.apply, self.query = bank.decide, bank.apply, bank.query
        self.rows, self.restore = bank.rows, bank.restore


class Other(Bank1):
    """A release that nobody can come to: the count became text."""

    description: ClassVar = _bank(4, Field("count", STR))
