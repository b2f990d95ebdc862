"""Obedience of a bookie to the order to drain it: it takes no more adds while the order stands."""

from __future__ import annotations

import logging
from typing import Final

from ledger.errors import LedgerError
from ledger.replication.hints import Hints
from ledger.replication.marks import MarkStore
from ledger.storage.entry_store import EntryStore
from ledger.zookeeper.ledgers import LedgerStore

_LOGGER = logging.getLogger(__name__)
_LOOK_S: Final = 30.0
"""Interval at which the order is looked at again, should a watch have been lost."""
_RETRY_S: Final = 1.0


class DrainOrder:
    """The order to drain one bookie.

    Args:
        ledgers: Metadata of the cluster.
        bookie_id: The bookie.

    Attributes:
        is_given: It was, when last looked at.

    """

    def __init__(self, ledgers: LedgerStore, bookie_id: str) -> None:
        self.is_given = False
        self._marks = MarkStore(ledgers.store, ledgers.root, "")
        self._bookie_id = bookie_id
        self._hints = Hints()

    async def obey(self, store: EntryStore) -> None:
        """Look whether it is given, and have the storage take adds or none.

        Raises:
            MetadataError: The metadata store does not answer.
            OSError: The order was taken back, and the free space cannot be told.

        """
        is_given = await self._marks.is_draining(self._bookie_id, self._hints)
        if is_given == self.is_given:
            return
        if is_given:
            _LOGGER.warning("this bookie is drained: others get what it holds, and it takes no more adds")
        await store.hold_read_only(is_held=is_given)
        self.is_given = is_given

    async def keep(self, store: EntryStore) -> None:
        """Obey it until cancelled."""
        while True:
            wait_s = _LOOK_S
            try:
                await self.obey(store)
            except (LedgerError, OSError) as error:
                _LOGGER.warning("it is not known whether this bookie is drained: %s", error)
                self._hints.forget_all()
                wait_s = _RETRY_S
            await self._hints.wait(wait_s)
