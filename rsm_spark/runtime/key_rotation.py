"""The log's key on a leader: which one seals, when a newer one takes its place, and how a log of before gets one.

1. Entries are sealed with no key that a live replica lacks: the newest that all of them advertise.
2. A log without a key gets one when nothing is in flight: the chain says so first, the next entry is sealed, and the
   next ledger is of the key. An entry without a seal that is on its way can so never reach a ledger with a key.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from ledger.errors import LedgerError
from rsm_spark.core.batching import Composer
from rsm_spark.core.leadership import LeaderProtocol
from rsm_spark.core.leadership_events import Event, KeyAdoptDue, RollDue
from rsm_spark.core.records import KernelRecord
from rsm_spark.core.seal import KEYED_LEVEL
from rsm_spark.errors import NotLeaderError, RsmError
from rsm_spark.log.discovery import MemberKeeper
from rsm_spark.log.member import Member
from rsm_spark.runtime.context import ReplicaContext

_LOGGER = logging.getLogger(__name__)
_LOOK_S = 2.0


async def advertise_keys(context: ReplicaContext, keeper: MemberKeeper) -> None:
    """Read the key file again whenever it has changed, and tell the others which keys are in it; until cancelled."""
    keys = context.settings.log_keys
    if keys is None:
        return
    while True:
        await asyncio.sleep(_LOOK_S)
        keys.refresh()
        if keeper.member.key_ids != keys.ids:
            keeper.tell(msgspec.structs.replace(keeper.member, key_ids=keys.ids))
            _LOGGER.info("keys of the log now: %s", ", ".join(keys.ids), extra=context.log_extra)


class KeyRotation:
    """The key during one leadership.

    Args:
        context: Of the replica.
        protocol: The leadership.
        want: Makes the leader ask `take_event` soon.

    Attributes:
        has_work: `take_event` may have something.

    """

    def __init__(self, context: ReplicaContext, protocol: LeaderProtocol, want: Callable[[], None]) -> None:
        self.has_work = False
        self._context = context
        self._protocol = protocol
        self._want = want
        self._composer: Composer | None = None
        self._adopting: asyncio.Future[str] | None = None
        self._is_roll_wanted = False

    def seal(self, composer: Composer) -> list[tuple[int, tuple[object, ...]]]:
        """Have the composer seal, if the log has a key; return the records that tell of it."""
        self._composer = composer
        chain, keys = self._protocol.chain, self._context.settings.log_keys
        assert chain is not None
        if not chain.key_id:
            return []
        assert keys is not None, "a replica without the key was not admitted"
        key_id = self._protocol.key_id
        key = keys.get(key_id)
        composer.entry_key = keys.entry_key(bytes.fromhex(key_id), bytes.fromhex(chain.log_id))
        if key is None or composer.entry_key is None:
            raise RsmError(f"log {self._context.log}: its entries are sealed with key {key_id}, {keys.lacking()}")
        composer.sign = key.sign
        return [(KernelRecord.KEY_ADOPTED, (bytes.fromhex(key_id), key.public))]

    # ---- rotation

    async def rounds(self) -> None:
        """Take the newest key that every live replica has; until cancelled."""
        keys = self._context.settings.log_keys
        if keys is None:
            return
        chain = self._protocol.chain
        assert chain is not None
        if not chain.key_id:
            _LOGGER.warning(
                "this replica was given a key, the log has none yet: rsm log key adopt %s",
                self._context.log,
                extra=self._context.log_extra,
            )
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                await self._look()
            except LedgerError as error:
                _LOGGER.info("a newer key has to wait: %s", error, extra=self._context.log_extra)

    async def _look(self) -> None:
        keys, protocol = self._context.settings.log_keys, self._protocol
        assert keys is not None
        if keys.newest.key_id == protocol.key_id or protocol.chain is None or not protocol.chain.key_id:
            return
        members = await self._context.discovery.members()
        ids = keys.ids
        now = ids.index(protocol.key_id) if protocol.key_id in ids else -1
        for key_id in reversed(ids[now + 1 :]):
            if all(key_id in member.key_ids for member in members):
                protocol.key_id = key_id
                composer = self._composer
                assert composer is not None
                composer.wanted += self.seal(composer)
                self._is_roll_wanted = self.has_work = True
                self._want()
                _LOGGER.info("entries are sealed with key %s now", key_id, extra=self._context.log_extra)
                return

    # ---- adoption

    async def adopt(self) -> str:
        """Give the log a key, if it has none; return the key's id.

        Raises:
            RsmError: This replica or another live one has no key, or not the newest one, or too old a version.
            NotLeaderError: This replica has stepped down.
            MetadataError: Nobody knows which replicas are live.

        """
        context, protocol = self._context, self._protocol
        assert protocol.chain is not None
        if protocol.chain.key_id:
            return protocol.chain.key_id
        keys = context.settings.log_keys
        if keys is None:
            raise RsmError(
                f"log {context.log}: its leader {context.me.replica_id} was given no key: start every replica with "
                "--log-key FILE first"
            )
        key_id = keys.newest.key_id
        behind = [member.replica_id for member in await context.discovery.members() if _lacks(member, key_id)]
        if behind:
            raise RsmError(
                f"log {context.log}: not every live replica has key {key_id} and knows format level {KEYED_LEVEL}: "
                f"{', '.join(behind)}. Give them the key file first"
            )
        protocol.key_id = key_id
        if self._adopting is None:
            self._adopting = asyncio.get_running_loop().create_future()
        self.has_work = True
        self._want()
        return await asyncio.shield(self._adopting)

    def take_event(self) -> Event | None:
        """Return the next change of the chain, or a roll; nothing is in flight."""
        chain = self._protocol.chain
        assert chain is not None
        self.has_work = False
        if self._adopting is not None and not chain.key_id:
            self.has_work = True
            return KeyAdoptDue()
        if self._adopting is not None:
            assert self._composer is not None
            self._composer.wanted += self.seal(self._composer)
            adopting, self._adopting = self._adopting, None
            if not adopting.done():
                adopting.set_result(chain.key_id)
            return RollDue()
        if self._is_roll_wanted:
            self._is_roll_wanted = False
            return RollDue()
        return None

    def stop(self) -> None:
        """Tell who waits that this replica does not lead."""
        if self._adopting is not None and not self._adopting.done():
            self._adopting.set_exception(NotLeaderError(f"log {self._context.log}: this replica stepped down"))
            self._adopting.exception()


def _lacks(member: Member, key_id: str) -> bool:
    return key_id not in member.key_ids or member.format_level < KEYED_LEVEL
