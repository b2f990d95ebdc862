"""A replicated bank: `rsm serve examples.bank:Bank --log bank --data-dir dev/bank`, on some machines."""

from typing import Annotated

import msgspec

import rsm_spark as rsm


class Account(msgspec.Struct):
    """A row of the table: the first field is its key."""

    name: str
    balance: int = 0


class InsufficientFunds(rsm.DomainError):
    """Error of a transfer of more than there is; it arrives at the client as this class."""

    missing: int


class Bank(rsm.Service):
    """Accounts, and money that is moved between them."""

    accounts = rsm.table(Account)

    @rsm.command
    def deposit(self, name: str, amount: Annotated[int, msgspec.Meta(gt=0)]) -> int:
        """Bring money; return the balance."""
        account = self.accounts.get(name) or Account(name)
        account.balance += amount
        self.accounts.put(account)
        return account.balance

    @rsm.command
    def transfer(self, source: str, target: str, amount: Annotated[int, msgspec.Meta(gt=0)]) -> int:
        """Move money; return what the source has left."""
        giver = self.accounts.get(source) or Account(source)
        if giver.balance < amount:
            raise InsufficientFunds(amount - giver.balance)
        giver.balance -= amount
        self.accounts.put(giver)
        self.deposit(target, amount)
        return giver.balance

    @rsm.query
    def balance(self, name: str) -> int:
        """Return what an account has."""
        account = self.accounts.get(name)
        return account.balance if account else 0
