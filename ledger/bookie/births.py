"""Permission to create a ledger on this bookie: by its first add, a fence, or an explicit LAC.

The first that comes pins the ledger's key, for good. So who reaches the port could fence, with a key of his own,
ledgers that are yet to be created, and no writer could ever use them. A connection that has logged in, by SASL or by a
client's certificate, is taken at its word. For anybody else the metadata must hold the ledger, with the password that
the key was made of. That is existence and password, not the ensemble: who copies a lost bookie's entries, Java's
auto-recovery or ours, names the new bookie in the metadata only when it is done. Writers of both kinds create the
metadata before the first add.

The metadata are asked off the path of all other requests; see `ledger.core.key_questions`. While they are not to be
had the answer is "too many requests", never yes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from hmac import compare_digest
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from ledger.core.key_questions import KeyQuestions, QuestionLimits
from ledger.errors import LedgerError, MetadataSessionLostError, MetadataUnavailableError, NoSuchLedgerError
from ledger.wire.digests import master_key
from ledger.zookeeper.ledgers import LedgerStore

if TYPE_CHECKING:
    # The requests of a connection ask here, and hear the answer: two halves of one question.
    from ledger.bookie.waiting_births import WaitingBirths


_LOGGER = logging.getLogger(__name__)
ANY_KEY: Final = b""
"""The metadata hold the ledger and no password, as metadata of format 1 do."""
FindKey: TypeAlias = Callable[[int], Awaitable[bytes | None]]
"""Ledger id to the master key that its metadata give, `ANY_KEY`, or None: there is no such ledger.

Raises `LedgerError` if that cannot be told.
"""


class BirthLimits(msgspec.Struct, frozen=True):
    """Bounds of what is asked and kept.

    Attributes:
        questions: How many questions, and how fast.
        answer_s: A question that takes longer counts as not answered.
        away_s: So long nothing is asked after metadata that could not be had.
        kept_s: So long an answer stands; a ledger needs it once.
        kept_max: Answers kept.

    """

    questions: QuestionLimits = QuestionLimits()
    answer_s: float = 2.0
    away_s: float = 0.5
    kept_s: float = 10.0
    kept_max: int = 10_000


class KeyNotFound(msgspec.Struct, frozen=True):
    """Answer that no key was found.

    Attributes:
        is_certain: There is no such ledger; else the metadata could not be had.

    """

    is_certain: bool


class Births:
    """See the module.

    Args:
        find_key: Asks the metadata.
        limits: Bounds.

    """

    def __init__(self, find_key: FindKey, limits: BirthLimits | None = None) -> None:
        self._find_key = find_key
        self._limits = limits or BirthLimits()
        self._questions = KeyQuestions(self._limits.questions)
        self._kept: dict[int, tuple[bytes, float]] = {}  # key, and until when; in the order of coming
        self._away_until_s = 0.0
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def allows(self, ledger_id: int, key: bytes) -> bool:
        """Return whether the metadata are known to hold this ledger with this key. If not, call `ask`."""
        kept = self._kept.get(ledger_id)
        return kept is not None and _fits(kept[0], key) and asyncio.get_running_loop().time() < kept[1]

    def ask(self, ledger_id: int, asker: WaitingBirths) -> bool:
        """Ask for a ledger's key; `asker` hears later. False: the metadata cannot be had, he hears nothing."""
        if asyncio.get_running_loop().time() < self._away_until_s:
            return False
        self._questions.ask(ledger_id, asker, asker.rank)
        self._go_on()
        return True

    def forget(self, ledger_ids: Sequence[int], asker: WaitingBirths) -> None:
        """Forget somebody who is gone."""
        self._questions.forget(ledger_ids, asker)

    def close(self) -> None:
        """Ask nothing more."""
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()

    def _go_on(self) -> None:
        loop = asyncio.get_running_loop()
        for ledger_id in self._questions.take(loop.time()):
            task = loop.create_task(self._look_up(ledger_id))
            self._tasks[task] = None
            task.add_done_callback(self._tasks.pop)
        wake_at_s = self._questions.wake_at_s()
        if self._timer is None and wake_at_s is not None:
            self._timer = loop.call_at(wake_at_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._go_on()

    async def _look_up(self, ledger_id: int) -> None:
        loop = asyncio.get_running_loop()
        found: bytes | KeyNotFound
        try:
            async with asyncio.timeout(self._limits.answer_s):
                key = await self._find_key(ledger_id)
            found = KeyNotFound(is_certain=True) if key is None else key
        except (MetadataUnavailableError, MetadataSessionLostError, TimeoutError) as error:
            now_s = loop.time()
            if now_s >= self._away_until_s:
                _LOGGER.warning(
                    "first adds of ledgers wait, for the metadata cannot be read: %s", str(error) or "no answer"
                )
            self._away_until_s = now_s + self._limits.away_s
            found = KeyNotFound(is_certain=False)
        except LedgerError as error:
            _LOGGER.warning("first adds of ledger %d are refused: %s", ledger_id, error, extra={"ledger": ledger_id})
            found = KeyNotFound(is_certain=False)
        if isinstance(found, bytes):
            self._keep(ledger_id, found, loop.time() + self._limits.kept_s)
        is_final = not (isinstance(found, KeyNotFound) and found.is_certain)
        askers = self._questions.answer(ledger_id, is_final=is_final)
        self._go_on()
        for asker in askers:
            asker.on_key(ledger_id, found)  # type: ignore[attr-defined]

    def _keep(self, ledger_id: int, key: bytes, until_s: float) -> None:
        self._kept.pop(ledger_id, None)
        self._kept[ledger_id] = key, until_s
        if len(self._kept) > self._limits.kept_max:
            del self._kept[next(iter(self._kept))]


def key_finder(ledgers: LedgerStore) -> FindKey:
    """Return what asks the metadata of a cluster; "no such ledger" only when the server asked has caught up."""

    async def find(ledger_id: int) -> bytes | None:
        try:
            metadata, _ = await ledgers.read(ledger_id)
        except NoSuchLedgerError:
            try:
                metadata, _ = await ledgers.read(ledger_id, sync=True)
            except NoSuchLedgerError:
                return None
        return ANY_KEY if metadata.format_version == 1 else master_key(metadata.password)

    return find


def _fits(found: bytes, key: bytes) -> bool:
    return found == ANY_KEY or compare_digest(found, key)
