"""A service whose tables Spark writes, with columns of most types; one table takes commands alone."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import msgspec

import rsm_spark as rsm


class Good(msgspec.Struct):
    """A row of `goods`."""

    shop: str
    number: int
    title: str
    price: Annotated[Decimal, rsm.column(precision=12, scale=2)] = Decimal("0.00")
    amount: Annotated[int, msgspec.Meta(ge=0)] = 0
    code: UUID | None = None
    at: datetime | None = None
    day: date | None = None
    tags: list[str] | None = None
    more: dict[str, Any] | None = None
    picture: bytes | None = None
    weight: float | None = None
    is_new: bool = False


class Order(msgspec.Struct):
    """A row of `orders`."""

    number: int


class Stock(rsm.Service):
    """Goods, and orders that nobody writes but by commands."""

    goods = rsm.table(Good, key=("shop", "number"), writable=True)
    orders = rsm.table(Order)

    @rsm.command
    def take(self, shop: str, number: int) -> int:
        """Take one away; return what is left."""
        good = self.goods.get(shop, number)
        assert good is not None
        good.amount -= 1
        self.goods.put(good)
        return good.amount

    @rsm.query
    def amount(self, shop: str, number: int) -> int:
        """Return how many there are."""
        good = self.goods.get(shop, number)
        return good.amount if good else -1

    @rsm.query
    def kept(self) -> list[Good]:
        """Return all goods, in the order of their keys."""
        return list(self.goods)

    @rsm.query
    def find(self, shop: str, number: int) -> Good | None:
        """Return a good."""
        return self.goods.get(shop, number)
