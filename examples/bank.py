"""A replicated bank in twenty lines: `rsm serve examples.bank:Bank --log bank --data-dir dev/bank`."""

from typing import Annotated

import msgspec

import rsm_spark as rsm


class Account(msgspec.Struct):
    """A row of the table: the first field is its key."""

    name: str
    balance: int = 0


class InsufficientFunds(rsm.DomainError):
    """Error of who wants more than there is; it arrives at the client as this class."""

    missing: int


class Bank(rsm.Service):
    """Accounts, and money that is moved between them."""

    accounts = rsm.table(Account)

    @rsm.command
    def deposit(self, name: str, amount: int) -> int:
        """Bring money, or take some; return the balance."""
        if (balance := self.balance(name) + amount) < 0:
            raise InsufficientFunds(-balance)
        self.accounts.put(Account(name, balance))
        return balance

    @rsm.command
    def transfer(self, source: str, target: str, amount: Annotated[int, msgspec.Meta(gt=0)]) -> int:
        """Move money; return what the source has left. If there is not enough, nobody has got anything."""
        self.deposit(target, amount)
        return self.deposit(source, -amount)

    @rsm.query
    def balance(self, name: str) -> int:
        """Return what an account has."""
        return (self.accounts.get(name) or Account(name)).balance
