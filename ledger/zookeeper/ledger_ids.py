"""Ids for new ledgers, drawn as every client of BookKeeper draws them, so that no two clients get the same.

An id is the number of an ephemeral sequential node, deleted at once. When those numbers leave the range of an int, the
generators of long ids take over for good: each is a node `HOB-<high 32 bits>`, the numbers below it are the low bits.
"""

from __future__ import annotations

import contextlib
from typing import Final

from ledger.errors import CorruptMetadataError, MetadataError, NodeExistsError, NoNodeError
from ledger.ports import MetadataStore
from ledger.wire import paths

_LOW_MAX: Final = paths.SHORT_LEDGER_ID_MAX - 1
"""Highest number that BookKeeper's own generator gives out before it calls a generator used up."""
_HIGH_MAX: Final = paths.SHORT_LEDGER_ID_MAX
_GENERATORS_KEPT: Final = 3


class LedgerIds:
    """Draws ids.

    Args:
        store: Where the nodes are.
        root: BookKeeper's root node.

    """

    def __init__(self, store: MetadataStore, root: str) -> None:
        self._store = store
        self._root = root
        self._are_long: bool | None = None  # Not known before the first.

    async def draw(self) -> int:
        """Return an id that no ledger has had.

        Raises:
            CorruptMetadataError: All ids have been given out, or a generator's node is none.

        """
        folder = paths.long_id_generator_path(self._root)
        if self._are_long is None:
            self._are_long = await self._store.exists(folder) is not None
        if not self._are_long:
            ledger_id = await self._draw_number(paths.id_generator_path(self._root))
            if ledger_id is not None:
                return ledger_id
            self._are_long = True
        high = max(await self._generators(), default=1)
        while high <= _HIGH_MAX:
            low = await self._draw_number(paths.long_id_generator_path(self._root, high))
            if low is not None:
                return high << 32 | low
            await self._drop_old_generators()
            high += 1
        raise CorruptMetadataError(f"{folder}: all ledger ids have been given out")

    async def _draw_number(self, prefix: str) -> int | None:
        """Return the next number of a generator; None if it is used up."""
        created = await self._store.create(prefix, ephemeral=True, sequential=True, parents=True)
        with contextlib.suppress(MetadataError):  # It goes with the session; the number is drawn all the same.
            await self._store.delete(created)
        try:
            number = int(created.removeprefix(prefix))
        except ValueError:
            raise CorruptMetadataError(
                f"{created}: a generator of ledger ids made this, which ends in no number"
            ) from None
        return number if 0 <= number <= _LOW_MAX else None  # ZooKeeper counts on from -2^31.

    async def _generators(self) -> list[int]:
        try:
            names = await self._store.children(paths.long_id_generator_path(self._root))
        except NoNodeError:
            return []
        return [high for high in map(paths.high_order_bits_of, names) if high is not None]

    async def _drop_old_generators(self) -> None:
        """Remove generators that are used up, but for a few that a slow client may still be asking."""
        for high in sorted(await self._generators())[:-_GENERATORS_KEPT]:
            node = paths.long_id_generator_path(self._root, high).rpartition("/")[0]
            with contextlib.suppress(NoNodeError, NodeExistsError):
                await self._store.delete(node)
