"""A log is made of a backup or not, whatever write is lost: its ledgers go only where no chain names them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

import pytest

from ledger.errors import LedgerError, MetadataUnavailableError
from ledger.ports import NodeChange, Versioned
from rsm_spark.backup.manifest import BackupError
from rsm_spark.backup.restore_mark import RestoreMark, is_withdrawn, sweep_restores
from rsm_spark.core.chain import LogChain, decode_chain
from rsm_spark.errors import LogError, RsmError
from tests.unit.rsm_spark.log.test_deletion import Ledgers, Nodes, chain

_ID, _CHAIN = "ab" * 16, "/rsm/logs/orders"
_MADE = decode_chain(chain("ab" * 16, 3, 5), log_name="orders")


class LateNodes(Nodes):
    """Nodes at which a write that was not answered may arrive later."""

    def __init__(self) -> None:
        super().__init__()
        self.late: list[Sequence[NodeChange]] = []

    async def change(self, changes: Sequence[NodeChange]) -> None:
        if any(one.path == _CHAIN for one in changes):
            self.late.append(changes)
            raise MetadataUnavailableError("no reply")
        self._write(changes)

    def arrive(self) -> None:
        """Have all of them arrive now."""
        for changes in self.late:
            with contextlib.suppress(LedgerError):
                self._write(changes)


def mark_of(store: Nodes) -> RestoreMark:
    mark = RestoreMark(store, "/rsm", "orders", _ID, "ann")  # type: ignore[arg-type]
    asyncio.run(mark.set())
    return mark


def make(store: Nodes, mark: RestoreMark, log: LogChain = _MADE) -> str:
    """Make the log as a restore does; return what becomes of its ledgers."""

    async def _make() -> str:
        try:
            await mark.create_chain(log)
        except (LedgerError, RsmError) as error:
            try:
                return "deleted" if await is_withdrawn(mark, "orders", error) else "left"
            except LogError:
                return "used"
        return "made"

    return asyncio.run(_make())


@pytest.mark.parametrize("is_reply_lost", [False, True])
def test_a_lost_reply_costs_no_ledger_that_a_chain_names(is_reply_lost: bool) -> None:
    for fails_at in range(5):
        store = Nodes()
        mark = mark_of(store)
        store.writes_left, store.is_reply_lost = fails_at, is_reply_lost
        ledgers = make(store, mark)
        assert (ledgers in {"made", "used"}) is (_CHAIN in store.nodes), f"write {fails_at}: {ledgers}"
        assert ledgers != "deleted" or store.writes_left < 0
        assert f"/rsm/making/{_ID}" not in store.nodes or ledgers != "made"


def test_a_write_that_arrives_after_the_log_was_given_up_makes_no_log() -> None:
    store = LateNodes()
    mark = mark_of(store)
    assert make(store, mark) == "deleted"
    store.arrive()
    assert _CHAIN not in store.nodes


def test_a_log_that_came_and_is_not_wanted_is_taken_back_unless_it_is_used() -> None:
    for version, expected in ((0, True), (1, False)):
        store = Nodes()
        mark = mark_of(store)
        asyncio.run(mark.create_chain(_MADE))
        store.nodes[_CHAIN] = Versioned(store.nodes[_CHAIN].value, version)
        if expected:
            assert asyncio.run(is_withdrawn(mark, "orders", BackupError("interrupted")))
            assert _CHAIN not in store.nodes
            assert asyncio.run(mark.withdraw()), "once more"
        else:
            with pytest.raises(LogError, match="the log was made before"):
                asyncio.run(is_withdrawn(mark, "orders", BackupError("interrupted")))
            assert _CHAIN in store.nodes


def test_another_log_of_the_name_stays_and_the_ledgers_go() -> None:
    store = Nodes()
    store.nodes[_CHAIN] = Versioned(chain("cd" * 16, 8), 0)
    assert make(store, mark_of(store)) == "deleted"
    assert decode_chain(store.nodes[_CHAIN].value, log_name="orders").log_id == "cd" * 16


def test_a_maker_that_was_taken_for_dead_makes_no_log_and_a_log_that_is_made_is_not_swept() -> None:
    for is_made in (False, True):
        store = Nodes()
        mark, ledgers = mark_of(store), Ledgers(store, {3, 5})
        ledgers.custom = dict.fromkeys((3, 5), {"rsm_log_id": _ID.encode()})
        if is_made:
            asyncio.run(mark.create_chain(_MADE))
        store.nodes.pop(f"/rsm/making/{_ID}-alive", None)
        store.nodes["/rsm/making"] = Versioned(b"", 0)
        assert asyncio.run(sweep_restores(ledgers, "/rsm")) == ([] if is_made else [3, 5])  # type: ignore[arg-type]
        if not is_made:
            assert make(store, mark) == "deleted"
        assert (_CHAIN in store.nodes) is is_made
