"""A fork takes contents while its origin is trimmed and frees them, in drawn orders of all their steps.

If the fork is made, it has what its last state names; if not, it says so. Planted bugs are found.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ledger.ports import NodeChange
from rsm_spark.backup import fork_contents
from rsm_spark.backup.fork_contents import ForkContents
from rsm_spark.backup.fork_snapshots import ForkRequest
from rsm_spark.core.chain import ChainLedger, ClosedEnd, LogChain, chain_path, encode_chain
from rsm_spark.core.orphans import content_metadata
from rsm_spark.errors import LogError
from rsm_spark.files.cleaning import FileCleaner
from rsm_spark.files.commands import FileDone, FreedLedger, FreedLedgers, ListFreed
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.contents import note_contents, note_places
from rsm_spark.log.sharing import SharedLedgers
from tests.unit.rsm_spark.log.test_deletion import Ledgers, Nodes

_ORIGIN, _FORK = "0a" * 16, "0b" * 16
_CONTENT, _NUMBER, _FREED_AT, _FORK_END = 77, 10, 150, 120
_SEEDS = 150


class SlowNodes(Nodes):
    """Nodes whose calls take a while that is drawn: whatever is under way at the same time comes in between."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng

    async def create(self, path: str, value: bytes = b"", *, parents: bool = False, **_: Any) -> None:
        """Create a node, those above it too."""
        names = path.split("/")
        for count in range(2, len(names) if parents else 0):
            if "/".join(names[:count]) not in self.nodes:
                self._write([NodeChange("/".join(names[:count]), b"", None)])
        self._write([NodeChange(path, value, None)])

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in ("get", "exists", "children", "create", "set", "delete", "change", "sync"):
            return found

        async def late(*args: Any, **named: Any) -> Any:
            for _ in range(self._rng.choice((0, 0, 1, 3, 9))):
                await asyncio.sleep(0)
            return await found(*args, **named)

        return late


class SlowLedgers(Ledgers):
    async def metadata(self, ledger_id: int) -> Any:
        await self.store.sync("")
        found = await super().metadata(ledger_id)
        return SimpleNamespace(custom=found.custom, is_closed=True, last_entry_id=2, length=100)


def _chain(first: int) -> LogChain:
    ledgers = [ChainLedger(number, 0, 1, 100 * number + 1, ClosedEnd(9, 100 * number + 100, 0, 1, "")) for number in
               range(first, 3)]  # fmt: skip
    return LogChain(_ORIGIN, 0, 1, ledgers=tuple(ledgers), format_level=2)


class ForkedStore:
    """The log of a file store that is forked while one of its files is freed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.store: Any = SlowNodes(self.rng)
        self.client: Any = SlowLedgers(self.store, {_CONTENT})
        self.client.custom[_CONTENT] = content_metadata("files", _ORIGIN, _NUMBER)
        self.target = ForkRequest(name="fork", rsm_root="/rsm", log="files", is_independent=False)
        self.is_forgotten = False

    async def trim(self) -> None:
        for _ in range(self.rng.randrange(60)):
            await asyncio.sleep(0)
        _, version = await self.store.get(chain_path("files"))
        await self.store.set(chain_path("files"), encode_chain(_chain(2)), version)

    async def clean(self, rounds: int) -> None:
        async def execute(_command: Any) -> FileDone:
            self.is_forgotten = True
            return FileDone()

        async def ask(query: Any) -> FreedLedgers:
            assert isinstance(query, ListFreed)
            is_listed = query.before > _FREED_AT and not self.is_forgotten
            return FreedLedgers((FreedLedger(_CONTENT, _NUMBER, _FREED_AT),) if is_listed else ())

        chains = ChainStore(self.store, "files")
        cleaner = FileCleaner(self.client, chains, "/rsm", execute=execute, ask=ask, leads=lambda: True, pause_s=1.0)
        for _ in range(rounds):
            await cleaner.round()

    async def fork(self) -> bool:
        chain, _ = await ChainStore(self.store, "files").read()
        if len(chain.ledgers) < 3:
            return False
        sharing = SharedLedgers(self.client, _FORK)
        contents = ForkContents(self.client, self.target, _FORK, sharing)
        try:
            await contents.take(chain, chain.ledgers[1], _FORK_END)
        except LogError:
            await sharing.delete(contents.shared)
            return False
        return True

    async def main(self) -> str:
        await note_contents(self.store, _ORIGIN, "/rsm")
        await self.store.create(chain_path("files"), encode_chain(_chain(0)))
        _, _, is_made = await asyncio.gather(self.trim(), self.clean(30), self.fork())
        if not is_made:
            await self.clean(1)
            assert _CONTENT not in self.client.ledger_ids, "nobody has it any more"
            return "not made"
        assert _CONTENT in self.client.ledger_ids, "the fork has lost a file"
        # Both let it go at the same time: the last one deletes it.
        await asyncio.gather(self.clean(1), SharedLedgers(self.client, _FORK).delete([_CONTENT]))
        if self.is_forgotten:
            assert _CONTENT not in self.client.ledger_ids, "nobody has it any more"
        return "made"


def _run(seed: int) -> str:
    async def limited() -> str:
        async with asyncio.timeout(60):
            return await ForkedStore(seed).main()

    return asyncio.run(limited())


def _run_all() -> Counter[str]:
    return Counter(_run(seed) for seed in range(_SEEDS))


def test_a_fork_has_what_its_last_state_names_or_is_not_made() -> None:
    counts = _run_all()
    assert min(counts["made"], counts["not made"]) > _SEEDS // 10, counts


def _notes_after_it_has_looked(patch: pytest.MonkeyPatch) -> None:
    use, note = SharedLedgers.use, note_places
    later: list[tuple[Any, ...]] = []

    async def _use(*given: Any) -> None:
        later.append(given)

    async def _note(*given: Any) -> None:
        for one in later:
            await use(*one)
        await note(*given)

    patch.setattr(SharedLedgers, "use", _use)
    patch.setattr(fork_contents, "note_places", _note)


def _does_not_look_again(patch: pytest.MonkeyPatch) -> None:
    class Old:
        def __init__(self, *_: Any) -> None: ...

        async def read(self) -> tuple[LogChain, int]:
            return _chain(0), 0

    patch.setattr(fork_contents, "ChainStore", Old)


def _does_not_ask_who_uses_a_ledger(patch: pytest.MonkeyPatch) -> None:
    async def nobody(*_: Any) -> set[int]:
        return set()

    patch.setattr(SharedLedgers, "_used_by_others", nobody)


@pytest.mark.parametrize("plant", [_notes_after_it_has_looked, _does_not_look_again, _does_not_ask_who_uses_a_ledger])
def test_planted_bugs_are_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="the fork has lost a file"):
        _run_all()
