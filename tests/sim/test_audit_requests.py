"""Requests for a look at all ledgers: answered by whoever audits, told to everybody, and kept until they are."""

from __future__ import annotations

import msgspec
import pytest

from ledger.errors import LedgerError, RetryableError
from ledger.ports import ANY_VERSION
from ledger.replication.audit_records import AuditKind, AuditLook, AuditRecord, AuditRecords
from ledger.replication.audit_waiting import wait_for_look
from ledger.replication.marks import MarkStore
from ledger.wire import underreplication as u
from tests.sim.recovery_world import RecoveryWorld

_SILENT_S = 20.0


def _records(world: RecoveryWorld) -> AuditRecords:
    return AuditRecords(world.client.ledgers.store, "/ledgers")


async def _ask(world: RecoveryWorld, kind: AuditKind, request: int = 0, *, silent_s: float = _SILENT_S) -> AuditLook:
    async def work() -> AuditLook:
        number = request or await _records(world).request(kind)
        return await wait_for_look(world.client.ledgers, kind, number, lambda _: None, silent_s=silent_s)

    look: AuditLook = await world.on_client(work())
    return look


@pytest.mark.parametrize("seed", range(4))
def test_whoever_asks_hears_of_a_look_that_began_afterwards(seed: int) -> None:
    world = RecoveryWorld(seed)

    async def main() -> None:
        await world.start()
        world.start_recovery()
        ledger_id = await world.write(20)
        first = await _ask(world, "audit")
        assert (first.request, first.ledger_count, first.lacking_count, first.lost) == (1, 1, 0, ())
        assert first.found_nothing
        assert first.ended_ms is not None
        bookies = (await world.metadata(ledger_id)).segments[0].bookies
        checked = await _ask(world, "check")
        assert (checked.ledger_count, checked.lacking_count, checked.found_nothing) == (1, 0, True)

        world.spoil(bookies[0], ledger_id, [0])  # Only who asks the bookies sees that.
        assert (await _ask(world, "audit")).found_nothing
        checked = await _ask(world, "check")
        assert (checked.request, checked.lacking, checked.marked_count) == (2, (ledger_id,), 1)

        world.bookie(bookies[1]).kill()
        while not (await _ask(world, "audit")).lost:
            pass
        record = await world.on_client(_records(world).read("audit"))
        assert record.running is None
        assert record.last.lost == (bookies[1],)
        assert record.last.by == next(iter(world.recoveries.values())).marks.owner

    world.simulation.run(main(), limit_s=300)


@pytest.mark.parametrize("seed", range(4))
def test_a_request_outlives_auditors(seed: int) -> None:
    world = RecoveryWorld(seed)

    async def main() -> None:
        await world.start()
        await world.write(20)
        number = await world.on_client(_records(world).request("audit"))
        with pytest.raises(RetryableError, match="nobody audits.*the request stands"):
            await _ask(world, "audit", number)
        first = world.start_recovery("r0")
        await _ask(world, "audit", number)
        number = await world.on_client(_records(world).request("audit"))
        first.kill()
        second = world.start_recovery("r1")
        answer = await _ask(world, "audit", number, silent_s=60.0)
        assert answer.request == number == 2
        second.kill()

    world.simulation.run(main(), limit_s=400)


def test_what_cannot_be_read_is_written_anew_and_a_cluster_without_recovery_says_so() -> None:
    world = RecoveryWorld(1)

    async def spoil() -> None:
        store = world.client.ledgers.store
        await store.set(u.audit_path("/ledgers", "audit"), b"rubbish", ANY_VERSION)

    async def main() -> None:
        await world.start()
        auditor = world.start_recovery()
        await _ask(world, "audit")
        auditor.kill()
        await world.on_client(spoil())
        auditor.start()
        assert (await _ask(world, "audit", silent_s=60.0)).found_nothing
        marks = MarkStore(world.client.ledgers.store, "/ledgers", "operator")
        await world.on_client(marks.set_enabled(False))
        with pytest.raises(LedgerError, match="switched off"):
            await _ask(world, "audit")

    world.simulation.run(main(), limit_s=300)


def test_a_silent_auditor_is_named() -> None:
    """BookKeeper's own has a vote, and hears no requests."""
    world = RecoveryWorld(2)

    async def vote() -> None:
        store = world.client.ledgers.store
        await store.create(
            u.vote_prefix("/ledgers"), u.encode_vote("java:3181"), ephemeral=True, sequential=True, parents=True
        )
        await store.set(u.election_path("/ledgers"), u.encode_vote("java:3181"), ANY_VERSION)

    async def main() -> None:
        await world.start()
        await world.on_client(vote())
        with pytest.raises(RetryableError, match="java:3181 has said nothing.*trigger_audit"):
            await _ask(world, "audit")

    world.simulation.run(main(), limit_s=200)


def test_records_are_bounded() -> None:
    look = AuditLook(by="a", request=1, began_ms=0, lacking=tuple(range(100)), lost=("b" * 200,) * 100)
    assert len(msgspec.json.encode(AuditRecord(last=look, running=look))) < 100_000
