"""Election of the auditor: the lowest of all votes wins, and each vote lasts as long as its session.

Two auditors at a time do no harm, for a moment after a lost session: all that an auditor does may be done twice.
"""

from __future__ import annotations

import contextlib
import logging
from typing import Final

from ledger.errors import CorruptMetadataError, MetadataError, NoNodeError
from ledger.ports import SessionState
from ledger.replication.hints import Hints
from ledger.replication.marks import MarkStore
from ledger.wire import underreplication as u

_LOGGER = logging.getLogger(__name__)
_LOOK_S: Final = 5.0
"""Watches are hints: the votes are looked at this often even if nobody told of a change."""


class AuditorElection:
    """One candidate.

    Args:
        marks: Where the votes are, and the candidate's name.

    """

    def __init__(self, marks: MarkStore) -> None:
        self._marks = marks
        self._vote: str | None = None
        self._session_id = 0
        self._hints = Hints()

    async def wait_until_elected(self) -> None:
        """Vote, and return when that vote is the lowest."""
        while True:
            try:
                if await self._look():
                    return
            except MetadataError as error:
                _LOGGER.info("election of the auditor put off: %s", error)
            await self._hints.wait(_LOOK_S)

    async def wait_until_deposed(self) -> None:
        """Return when the vote may be gone: another auditor may lead by now."""
        store = self._marks.store
        unsubscribe = store.on_session_state(lambda _: self._hints.wake())
        try:
            while store.session_state is not SessionState.LOST and store.session_id == self._session_id:
                if self._vote is None or await self._is_gone(self._vote):
                    return
                await self._hints.wait(_LOOK_S)
        finally:
            unsubscribe()

    async def withdraw(self) -> None:
        """Take the vote back, so that another one leads at once."""
        vote, self._vote = self._vote, None
        if vote is not None:
            with contextlib.suppress(MetadataError):
                await self._marks.store.delete(vote)

    async def leader(self) -> str | None:
        """Return who is the auditor; None if nobody is, or nobody can tell."""
        votes = await self._votes()
        return await self._name_in(votes[0]) if votes else None

    async def _look(self) -> bool:
        """Return whether our vote is the lowest; if not, watch the one before it."""
        store, root = self._marks.store, self._marks.root
        if self._vote is None or self._session_id != store.session_id or await store.exists(self._vote) is None:
            self._session_id = store.session_id
            value = u.encode_vote(self._marks.owner)
            self._vote = await store.create(u.vote_prefix(root), value, ephemeral=True, sequential=True, parents=True)
        votes = await self._votes()
        mine = self._vote.rpartition("/")[2]
        if mine not in votes:
            return False  # The server asked lags, or it is gone: look again.
        mine = await self._adopt_lowest(votes, mine)
        before = votes[: votes.index(mine)]
        if before:
            # If it is gone by now, there is one less to wait for at the next look.
            if await self._is_gone(f"{u.election_path(root)}/{before[-1]}"):
                self._hints.wake()
            return False
        with contextlib.suppress(MetadataError):  # Only tells operators who it is.
            await store.set(u.election_path(root), u.encode_vote(self._marks.owner), -1)
        return True

    async def _adopt_lowest(self, votes: list[str], mine: str) -> str:
        """Return the lowest vote of ours; the later one goes.

        There are two if the reply to the creation of the first was lost. Others wait for the lower one, so it counts.
        """
        root = self._marks.root
        for vote in votes[: votes.index(mine)]:
            if await self._name_in(vote) == self._marks.owner:
                self._vote = f"{u.election_path(root)}/{vote}"
                with contextlib.suppress(MetadataError):
                    await self._marks.store.delete(f"{u.election_path(root)}/{mine}")
                return vote
        return mine

    async def _votes(self) -> list[str]:
        numbered = [(u.vote_number(name), name) for name in await self._children()]
        return [name for number, name in sorted((n, name) for n, name in numbered if n is not None)]

    async def _children(self) -> list[str]:
        try:
            return await self._marks.store.children(u.election_path(self._marks.root))
        except NoNodeError:
            return []

    async def _name_in(self, vote: str) -> str | None:
        try:
            return u.decode_owner((await self._marks.store.get(f"{u.election_path(self._marks.root)}/{vote}")).value)
        except (NoNodeError, CorruptMetadataError):
            return None

    async def _is_gone(self, path: str) -> bool:
        """Return whether a vote is known to be gone; if not, watch it."""
        try:
            return await self._marks.store.exists(path, watch=self._hints.on(path)) is None
        except MetadataError:
            self._hints.forget(path)
            return False
