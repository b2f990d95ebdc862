"""Reports of a bookie about itself: the room on its disk, and the entries it holds of a ledger."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from ledger.bookie.responder import Responder
from ledger.core.bookie_entry_list import pack_entry_ids
from ledger.storage.bookie_ledger import missing_ledger_status
from ledger.storage.entry_store import EntryStore
from ledger.wire import packets as p
from ledger.wire.codes import INFO_FLAG_FREE_DISK, INFO_FLAG_TOTAL_DISK, Status
from ledger.wire.frames import FRAME_BYTES_MAX

_LOGGER = logging.getLogger(__name__)
_REPORTS_MAX: Final = 1_000
"""Number of reports, of either kind, that may wait for a disk at a time."""

DiskBytes = Callable[[], asyncio.Future[tuple[int, int]]]
"""Looks at the ledger disk: (total, free)."""


class ReportHandlers:
    """Answers requests for reports.

    Args:
        store: The storage.
        disk_bytes: One look serves all who ask while it is under way.

    """

    def __init__(self, store: EntryStore, disk_bytes: DiskBytes) -> None:
        self._store = store
        self._disk_bytes = disk_bytes
        self._asked: list[tuple[Responder, p.InfoRequest]] = []
        self._list_count = 0

    def info(self, connection: Responder, request: p.InfoRequest) -> bool:
        """Tell the size of the disk and what is free of it."""
        if len(self._asked) >= _REPORTS_MAX:
            connection.answer(p.InfoResponse(request.txn_id, Status.ETOOMANYREQUESTS))
            return True
        self._asked.append((connection, request))
        if len(self._asked) == 1:
            self._disk_bytes().add_done_callback(self._answer_info)
        return True

    def _answer_info(self, future: asyncio.Future[tuple[int, int]]) -> None:
        asked, self._asked = self._asked, []
        for connection, request in asked:
            if future.exception() is not None:
                connection.answer(p.InfoResponse(request.txn_id, Status.EIO))
            else:
                total, free = future.result()
                wanted = request.requested
                response = p.InfoResponse(
                    request.txn_id,
                    Status.EOK,
                    total if wanted & INFO_FLAG_TOTAL_DISK else None,
                    free if wanted & INFO_FLAG_FREE_DISK else None,
                )
                connection.answer(response)
            connection.flush()

    def list_entries(self, connection: Responder, request: p.ListRequest) -> bool:
        """Tell which entries of a ledger are held."""
        ledger = self._store.ledgers.get(request.ledger_id)
        if ledger is None or ledger.is_deleted:
            status = missing_ledger_status(request.ledger_id, self._store.limbo.ledger_id_max)
            connection.answer(p.ListResponse(request.txn_id, status, request.ledger_id))
        elif self._list_count >= _REPORTS_MAX:
            connection.answer(p.ListResponse(request.txn_id, Status.ETOOMANYREQUESTS, request.ledger_id))
        else:
            self._list_count += 1
            listing = self._store.list_entries(request.ledger_id)
            listing.add_done_callback(partial(self._answer_list, connection, request))
        return True

    def _answer_list(self, connection: Responder, request: p.ListRequest, future: asyncio.Future[list[int]]) -> None:
        self._list_count -= 1
        response = p.ListResponse(request.txn_id, Status.EIO, request.ledger_id)
        if future.exception() is not None:
            _LOGGER.error("entries of a ledger cannot be listed", extra={"ledger": request.ledger_id})
        else:
            packed = pack_entry_ids(future.result())
            if len(packed) < FRAME_BYTES_MAX - 128:
                response = p.ListResponse(request.txn_id, Status.EOK, request.ledger_id, packed)
            else:
                _LOGGER.error("a list of entries is too long for a frame", extra={"ledger": request.ledger_id})
        connection.answer(response)
        connection.flush()
