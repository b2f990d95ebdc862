"""An amount that all callers share, of which neither a token nor an address takes more than its part."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple


class Holder(NamedTuple):
    """Holder of a place in a pool: token and address are each bounded by their part, unless None.

    Attributes:
        token: Whose token it is.
        address: From where it comes.

    """

    token: Hashable | None
    address: str | None


class Pool:
    """See the module.

    Args:
        whole_max: All of it.
        token_max: What one token may have.
        address_max: What one address may have.

    Attributes:
        held: What is taken.
        token_max: The same.

    """

    __slots__ = ("_address_max", "_addresses", "_tokens", "_whole_max", "held", "token_max")

    def __init__(self, whole_max: int, token_max: int, address_max: int) -> None:
        self._whole_max = whole_max
        self.token_max = token_max
        self._address_max = address_max
        self.held = 0
        # What each has; none is 0.
        self._tokens: dict[Hashable, int] = {}
        self._addresses: dict[Hashable, int] = {}

    def has(self, amount: int) -> bool:
        """Tell whether all together may take so much more."""
        return self.held + amount <= self._whole_max

    def has_for(self, amount: int, holder: Holder) -> bool:
        """Tell whether this one may."""
        return (holder.token is None or self._tokens.get(holder.token, 0) + amount <= self.token_max) and (
            holder.address is None or self._addresses.get(holder.address, 0) + amount <= self._address_max
        )

    def take(self, amount: int, holder: Holder) -> None:
        """Take so much; `has` and `has_for` have said that there is."""
        self.held += amount
        _add(self._tokens, holder.token, amount)
        _add(self._addresses, holder.address, amount)

    def give(self, amount: int, holder: Holder) -> None:
        """Give back what was taken."""
        self.held -= amount
        _add(self._tokens, holder.token, -amount)
        _add(self._addresses, holder.address, -amount)


def _add(parts: dict[Hashable, int], holder: Hashable | None, amount: int) -> None:
    if holder is None:
        return
    has = parts.get(holder, 0) + amount
    assert has >= 0, "more is given back than was taken"
    if has:
        parts[holder] = has
    else:
        parts.pop(holder, None)
