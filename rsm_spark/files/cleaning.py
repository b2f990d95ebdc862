"""Frees the space of contents that nothing names any more: the leader of a file store deletes their ledgers.

1. The log itself says which ledgers nothing names any more, and since which revision: of files that were deleted or
   replaced, and of uploads that were given up. One whose server is silent for too long, by logged time, is given up.
2. A ledger that a file has had goes only once the log is trimmed beyond the revision at which it lost its name. Until
   then an older state can be had, by a replay or by a fork; behind that no snapshot can be gone on from that names it.
3. A ledger of which the log knows nothing was created by a server that died before it could note it. Its metadata say
   for which upload; once that has ended, nothing will ever name it. A leader looks for those first, and every hour.
4. What is asked of the state is asked as any read: what is not confirmed frees nothing.

The ledger goes first, then the log forgets it: cut off in between, the next round does it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from ledger.client.client import LedgerClient
from ledger.errors import LedgerError, NoSuchLedgerError
from rsm_spark.core.chain import LogChain
from rsm_spark.core.orphans import content_number, maker_of
from rsm_spark.errors import RsmError
from rsm_spark.files.commands import (
    FileCommand,
    FileDone,
    FileQuery,
    FileResult,
    FindNameless,
    ForgetLedgers,
    FreedLedger,
    FreedLedgers,
    ListFreed,
    NamelessLedgers,
    UploadBegun,
)
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.contents import ContentPlaces, has_contents, makers_of
from rsm_spark.log.sharing import SharedLedgers

_LOGGER = logging.getLogger(__name__)
_AT_ONCE = 100
_PAUSE_S = 0.2
_SWEEP_S = 3_600.0
Execute = Callable[[FileCommand], Awaitable[FileDone | UploadBegun]]
Ask = Callable[[FileQuery], Awaitable[FileResult]]


class FileCleaner:
    """See the module. For one event loop.

    Args:
        client: Connected ledger client; stays the caller's.
        chains: Of the log.
        rsm_root: Where logs live.
        execute: Has a command carried out.
        ask: Answers a query by what is confirmed.
        leads: Whether this replica leads.
        pause_s: Time between two looks.

    Attributes:
        deleted: Ledgers deleted since the process began.

    """

    def __init__(
        self,
        client: LedgerClient,
        chains: ChainStore,
        rsm_root: str,
        *,
        execute: Execute,
        ask: Ask,
        leads: Callable[[], bool],
        pause_s: float,
    ) -> None:
        self.deleted = 0
        self._client = client
        self._chains = chains
        self._rsm_root = rsm_root
        self._execute = execute
        self._ask = ask
        self._leads = leads
        self._pause_s = pause_s
        self._places = ContentPlaces(client.store, rsm_root)
        self._wake = asyncio.Event()
        self._swept_at: float | None = None

    def look(self) -> None:
        """Look now: the role has changed."""
        self._swept_at = None
        self._wake.set()

    async def run(self) -> None:
        """Look again and again, while this replica leads; until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            if self._leads():
                try:
                    await self.round()
                    if self._swept_at is None or loop.time() - self._swept_at >= _SWEEP_S:
                        self._swept_at = loop.time()
                        await self.sweep()
                except (LedgerError, RsmError, TimeoutError) as error:
                    self._swept_at = None
                    _LOGGER.info("freeing the space of files has to wait: %s", error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._pause_s)
            self._wake.clear()

    async def round(self) -> None:
        """Delete what may go of the ledgers that the log names as freed.

        Raises:
            LedgerError: The metadata store cannot be asked.
            RsmError: The state cannot be asked.

        """
        chain, _ = await self._chains.read()
        begin = chain.ledgers[0].first_revision if chain.ledgers else 0
        found = await self._ask(ListFreed("/", _AT_ONCE * 10, max(begin, 1)))
        assert isinstance(found, FreedLedgers)
        due = [one for one in found.ledgers if is_due(one, chain)]
        for first in range(0, len(due), _AT_ONCE):
            some = due[first : first + _AT_ONCE]
            held = [await self._held(chain, one) for one in some]
            await self._delete(chain, [ledger for ledger in held if ledger is not None])
            await self._execute(ForgetLedgers("/", tuple(one.ledger for one in some)))

    async def sweep(self) -> None:
        """Look through all ledgers of the cluster, in slices, for contents of this log that nothing knows of."""
        chain, _ = await self._chains.read()
        if not await has_contents(self._client.store, chain.log_id, self._rsm_root):
            return
        ledgers, places = await self._client.list(), await self._places.of(chain)
        logged = {one.ledger: one.logged for one in places.values()}
        for first in range(0, len(ledgers), _AT_ONCE):
            asked: dict[int, tuple[int, int]] = {}  # By the ledger that the log names: the one that is there, number.
            for ledger in ledgers[first : first + _AT_ONCE]:
                with contextlib.suppress(NoSuchLedgerError):  # Deleted meanwhile.
                    custom = (await self._client.metadata(ledger)).custom
                    number = content_number(custom)
                    if number is not None and maker_of(custom) == chain.log_id:
                        asked[logged.get(ledger, ledger)] = ledger, number
            if asked:
                named = tuple((one, number) for one, (_, number) in asked.items())
                found = await self._ask(FindNameless("/", named))
                assert isinstance(found, NamelessLedgers)
                await self._delete(chain, [asked[one][0] for one in found.ledgers])
            await asyncio.sleep(_PAUSE_S)

    async def _held(self, chain: LogChain, freed: FreedLedger) -> int | None:
        """Return the ledger of a content; None = it is gone, or was not made for it: so nobody has others deleted."""
        ledger = await self._places.ledger_of(chain, freed.number, freed.ledger)
        try:
            custom = (await self._client.metadata(ledger)).custom
        except NoSuchLedgerError:  # Deleted before, and not forgotten.
            return None
        if content_number(custom) == freed.number and maker_of(custom) in makers_of(chain):
            return ledger
        # Contents of before the last origin may have stayed with that one.
        if freed.number > (chain.origins[-1].revision if chain.origins else 0):
            said = "ledger %d is named as the content of file %d, and is not"
            _LOGGER.error(said, ledger, freed.number, extra={"ledger": ledger})
        return None

    async def _delete(self, chain: LogChain, ledgers: list[int]) -> None:
        if not ledgers:
            return
        done = await SharedLedgers(self._client, chain.log_id, self._rsm_root).delete(ledgers)
        self.deleted += len(done.deleted)
        _LOGGER.info("deleted %d ledgers of contents that nothing names any more", len(done.deleted))


def is_due(freed: FreedLedger, chain: LogChain) -> bool:
    """Return whether a ledger may go: no state that can still be had names it.

    Args:
        freed: What the log says of it.
        chain: Of the log; every state that can be had is at a revision that it holds, or right before.

    """
    return not freed.revision or bool(chain.ledgers and chain.ledgers[0].first_revision > freed.revision)
