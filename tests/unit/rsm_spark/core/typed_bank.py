"""Services of the tests: the bank of the examples, an outbox, and a shop that has both as parts."""

from __future__ import annotations

import msgspec

import rsm_spark as rsm
from examples.bank import Bank


class Letter(msgspec.Struct, kw_only=True):
    """A row whose key is not its first field."""

    text: str
    shelf: str
    number: int
    sender: str | None = None


class ShelfFull(rsm.DomainError):  # noqa: N818 - a word of the domain
    shelf: str
    room: int = 0


class Outbox(rsm.Service):
    letters = rsm.table(Letter, key=("shelf", "number"))

    @rsm.command
    def post(self, text: str, *, shelf: str = "a") -> int:
        """Post a letter."""
        number = sum(letter.shelf == shelf for letter in self.letters) + 1
        if number > 3:
            raise ShelfFull(shelf)
        self.letters.put(Letter(text=text, shelf=shelf, number=number))
        return number

    @rsm.command
    def burn(self, shelf: str, number: int) -> bool:
        return self.letters.delete(shelf, number)

    @rsm.command
    def post_and_burn(self) -> tuple[int, int]:
        """Write a row, and delete it again."""
        self.letters.put(Letter(text="", shelf="z", number=1))
        kept = len(self.letters), ("z", 1) in self.letters
        self.letters.delete("z", 1)
        assert kept == (len(self.letters) + 1, True)
        return len(self.letters), len(list(self.letters))

    @rsm.command
    def lie(self) -> int:
        """Reply of another type than declared."""
        self.letters.put(Letter(text="", shelf="lie", number=1))
        return "five"  # type: ignore[return-value]

    @rsm.command
    def echo(self, text: str) -> str:
        """Reply what was sent."""
        return text

    @rsm.query
    def texts(self) -> list[Letter]:
        return list(self.letters)

    @rsm.query
    def change(self) -> None:
        """Change something, which no query may."""
        self.letters.put(Letter(text="", shelf="z", number=9))


class Shop(rsm.Service, version=3):
    bank = rsm.part(Bank)
    outbox = rsm.part(Outbox)

    @rsm.command
    def pay(self, source: str, amount: int) -> int:
        """Pay, with a receipt."""
        number = self.outbox.post(f"{source} pays {amount}")
        self.bank.transfer(source, "shop", amount)
        return number

    @rsm.command
    def try_to_pay(self, source: str, amount: int) -> bool:
        """Pay if there is enough: what a part has changed before it raised is taken back."""
        try:
            self.pay(source, amount)
        except ShelfFull:
            raise
        except rsm.DomainError:
            return False
        return True
