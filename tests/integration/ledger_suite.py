"""What the client does on a real cluster, whoever wrote the bookies: run on ours and on BookKeeper's own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

from ledger import BlockingLedgerClient, DigestType, LedgerClient, LedgerState
from ledger.client.client import UNCLAIMED
from ledger.core.metadata import Segment
from ledger.errors import (
    EntryTooLargeError,
    FencedError,
    LedgerError,
    NoSuchEntryError,
    NoSuchLedgerError,
    NotEnoughBookiesError,
    UsageError,
    WrongPasswordError,
)
from ledger.wire.entry import PAYLOAD_BYTES_MAX

__all__ = ["LedgerSuite", "on_cluster"]

Scenario = Callable[[LedgerClient], Awaitable[None]]


def on_cluster(metadata_uri: str, scenario: Scenario, *, timeout_s: float = 60) -> None:
    """Run a scenario with a client of its own."""

    async def run() -> None:
        async with asyncio.timeout(timeout_s), await LedgerClient.connect(metadata_uri) as client:
            await scenario(client)

    asyncio.run(run())


class LedgerSuite:
    """Needs a fixture `metadata_uri` of a cluster with three bookies."""

    @pytest.mark.parametrize("quorum", [(1, 1, 1), (2, 2, 2), (3, 2, 2), (3, 3, 2)])
    @pytest.mark.parametrize("digest_type", list(DigestType))
    def test_what_was_appended_is_read_back(
        self, metadata_uri: str, quorum: tuple[int, int, int], digest_type: DigestType
    ) -> None:
        async def scenario(client: LedgerClient) -> None:
            e, w, a = quorum
            writer = await client.create(
                ensemble_size=e,
                write_quorum=w,
                ack_quorum=a,
                digest_type=digest_type,
                password=b"pw",
                custom={"k": b"v"},
            )
            payloads = [b"%d" % i * (i % 7) for i in range(300)]
            first = writer.append(payloads[0])
            assert await writer.append_many(payloads[1:]) == 299
            assert await first == 0
            assert await writer.close() == 299
            reader = await client.open_no_recovery(writer.ledger_id, password=b"pw")
            entries = await reader.read(0, 299)
            assert [entry.payload for entry in entries] == payloads
            assert [entry.entry_id for entry in entries] == list(range(300))
            assert reader.metadata.length == sum(map(len, payloads)) == entries[-1].length
            assert reader.metadata.custom == {"k": b"v"}

        on_cluster(metadata_uri, scenario)

    def test_the_largest_entry_survives_and_a_larger_one_is_refused_and_harms_nothing(self, metadata_uri: str) -> None:
        async def scenario(client: LedgerClient) -> None:
            writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
            largest = bytes(PAYLOAD_BYTES_MAX)
            with pytest.raises(EntryTooLargeError, match=str(PAYLOAD_BYTES_MAX)):
                writer.append(largest + b"x")
            assert await writer.append(largest) == 0
            assert await writer.append(b"") == 1
            await writer.write_lac()
            reader = await client.open_no_recovery(writer.ledger_id)
            await reader.read_lac()
            entries = await reader.read(0, 1)
            assert [len(entry.payload) for entry in entries] == [PAYLOAD_BYTES_MAX, 0]

        on_cluster(metadata_uri, scenario)

    def test_a_reader_sees_up_to_the_lac_and_an_explicit_lac_shows_the_rest(self, metadata_uri: str) -> None:
        async def scenario(client: LedgerClient) -> None:
            writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=3)
            reader = await client.open_no_recovery(writer.ledger_id)
            assert (await reader.read_lac()).last_add_confirmed == -1
            for _ in range(3):
                await writer.append(b"x")
            info = await reader.read_lac()
            assert (info.last_add_confirmed, info.explicit_lac) == (1, -1)
            with pytest.raises(UsageError, match="confirmed is up to 1"):
                await reader.read(0, 2)
            assert len(await reader.read_unconfirmed(0, 2)) == 3
            await writer.write_lac()
            info = await reader.read_lac()
            assert (info.last_add_confirmed, info.explicit_lac) == (2, 2)

        on_cluster(metadata_uri, scenario)

    def test_a_wait_for_the_lac_is_answered_when_it_moves(self, metadata_uri: str) -> None:
        async def scenario(client: LedgerClient) -> None:
            writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
            reader = await client.open_no_recovery(writer.ledger_id)
            await writer.append(b"0")
            waiting = asyncio.create_task(reader.wait_lac(-1, 20))
            await writer.append(b"1")
            assert (await waiting).last_add_confirmed >= 0

        on_cluster(metadata_uri, scenario)

    def test_a_tail_gets_every_entry_once_and_ends_with_the_ledger(self, metadata_uri: str) -> None:
        async def scenario(client: LedgerClient) -> None:
            writer = await client.create(ensemble_size=3, write_quorum=2, ack_quorum=2)
            reader = await client.open_no_recovery(writer.ledger_id)
            seen: list[int] = []

            async def tail() -> None:
                async for entries in reader.tail():
                    seen.extend(entry.entry_id for entry in entries)

            task = asyncio.create_task(tail())
            for _ in range(40):
                await writer.append_many([b"x"] * 25)
            await writer.close()
            await task
            assert seen == list(range(1000))

        on_cluster(metadata_uri, scenario)

    def test_recovery_stops_the_writer_and_keeps_all_that_was_acknowledged(self, metadata_uri: str) -> None:
        async def scenario(client: LedgerClient) -> None:
            for _ in range(5):
                writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
                acked = await writer.append(b"first")
                started = asyncio.Event()

                async def write() -> None:
                    nonlocal acked
                    while True:
                        acked = await writer.append_many([b"y" * 100] * 20)  # noqa: B023
                        if acked > 100:
                            started.set()  # noqa: B023

                task = asyncio.create_task(write())
                await started.wait()
                async with await LedgerClient.connect(metadata_uri) as other:
                    reader = await other.open(writer.ledger_id)
                    with pytest.raises(FencedError):
                        await task
                    assert reader.last_add_confirmed >= acked
                    assert await writer.close() == reader.last_add_confirmed
                    entries = await reader.read(0, reader.last_add_confirmed)
                    assert entries[-1].length == reader.metadata.length
                with pytest.raises(FencedError):
                    await writer.append(b"late")

        on_cluster(metadata_uri, scenario)

    def test_a_burst_before_the_first_acknowledgement_is_recovered(self, metadata_uri: str) -> None:
        async def scenario(client: LedgerClient) -> None:
            writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
            await writer.append_many([b"z"] * 500)
            writer.abandon()
            reader = await client.open_no_recovery(writer.ledger_id)
            assert (await reader.read_lac()).last_add_confirmed == -1
            assert (await client.open(writer.ledger_id)).last_add_confirmed == 499

        on_cluster(metadata_uri, scenario)

    def test_two_recoverers_agree_on_one_end(self, metadata_uri: str) -> None:
        async def scenario(client: LedgerClient) -> None:
            writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
            await writer.append_many([b"z"] * 300)
            writer.abandon()
            async with await LedgerClient.connect(metadata_uri) as other:
                readers = await asyncio.gather(client.open(writer.ledger_id), other.open(writer.ledger_id))
            assert [reader.last_add_confirmed for reader in readers] == [299, 299]
            assert readers[0].metadata == readers[1].metadata

        on_cluster(metadata_uri, scenario)

    def test_a_wrong_password_neither_reads_nor_fences(self, metadata_uri: str) -> None:
        async def scenario(client: LedgerClient) -> None:
            writer = await client.create(password=b"right")
            await writer.append(b"x")
            for attempt in (client.open, client.open_no_recovery, client.claim):
                with pytest.raises(WrongPasswordError):
                    await attempt(writer.ledger_id, password=b"wrong")
            assert (await client.metadata(writer.ledger_id, sync=True)).state == LedgerState.OPEN
            assert await writer.append(b"y") == 1

        on_cluster(metadata_uri, scenario)

    def test_a_deleted_ledger_is_gone(self, metadata_uri: str) -> None:
        async def scenario(client: LedgerClient) -> None:
            writer = await client.create()
            await writer.append(b"x")
            await writer.close()
            assert writer.ledger_id in await client.list()
            await client.delete(writer.ledger_id)
            assert writer.ledger_id not in await client.list()
            for attempt in (client.open, client.open_no_recovery, client.delete, client.metadata):
                with pytest.raises(NoSuchLedgerError, match=str(writer.ledger_id)):
                    await attempt(writer.ledger_id)

        on_cluster(metadata_uri, scenario)

    def test_beyond_the_end_of_a_closed_ledger_is_a_clear_error(self, metadata_uri: str) -> None:
        async def scenario(client: LedgerClient) -> None:
            writer = await client.create()
            assert await writer.close() == -1
            reader = await client.open(writer.ledger_id)
            with pytest.raises(NoSuchEntryError, match="its last entry is -1"):
                await reader.read(0, 0)
            with pytest.raises(LedgerError):
                await writer.append(b"x")
            assert [batch async for batch in reader.tail()] == []

        on_cluster(metadata_uri, scenario)

    def test_more_bookies_than_there_are_is_a_clear_error(self, metadata_uri: str) -> None:
        async def scenario(client: LedgerClient) -> None:
            with pytest.raises(NotEnoughBookiesError, match="9 bookies"):
                await client.create(ensemble_size=9)
            with pytest.raises(UsageError, match="ack quorum <= write quorum"):
                await client.create(ensemble_size=2, write_quorum=1, ack_quorum=2)

        on_cluster(metadata_uri, scenario)

    def test_one_of_many_claims_wins(self, metadata_uri: str) -> None:
        async def scenario(client: LedgerClient) -> None:
            created = await client.create(custom={UNCLAIMED: b""})
            created.abandon()
            claims = [client.claim(created.ledger_id) for _ in range(4)]
            outcomes = await asyncio.gather(*claims, return_exceptions=True)
            (writer,) = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
            assert await writer.append(b"x") == 0
            assert await writer.close() == 0

        on_cluster(metadata_uri, scenario)

    def test_a_dead_ensemble_member_is_replaced_by_a_spare_during_recovery(self, metadata_uri: str) -> None:
        """The dead one is a port where nobody listens, put into the metadata as the old ensemble."""

        async def scenario(client: LedgerClient) -> None:
            writer = await client.create(ensemble_size=1, write_quorum=1, ack_quorum=1)
            await writer.append_many([b"x"] * 3)
            writer.abandon()
            metadata, version = await client.ledgers.read(writer.ledger_id)
            bookie = metadata.segments[0].bookies[0]
            two = type(metadata.quorum)(2, 2, 2)
            changed = type(metadata)(
                two, metadata.state, (Segment(0, (bookie, "127.0.0.1:1")),), metadata.digest_type, metadata.password
            )
            await client.ledgers.write(writer.ledger_id, changed, version)
            reader = await client.open(writer.ledger_id)
            assert reader.last_add_confirmed == 2
            last = reader.metadata.segments[-1]
            assert "127.0.0.1:1" not in last.bookies
            assert [entry.payload for entry in await reader.read(0, 2)] == [b"x"] * 3

        on_cluster(metadata_uri, scenario)

    def test_the_blocking_client_does_the_same(self, metadata_uri: str) -> None:
        with BlockingLedgerClient(metadata_uri) as client:
            writer = client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
            assert writer.append(b"0") == 0
            assert writer.append_many([b"1", b"2"]) == 2
            writer.write_lac()
            reader = client.open_no_recovery(writer.ledger_id)
            assert reader.read_lac().explicit_lac == 2
            assert [entry.payload for entry in reader.read(0, 2)] == [b"0", b"1", b"2"]
            assert writer.close() == 2
            assert [entry.entry_id for batch in reader.tail(1) for entry in batch] == [1, 2]
            assert client.open(writer.ledger_id).is_closed
            client.delete(writer.ledger_id)
            with contextlib.suppress(NoSuchLedgerError):
                client.metadata(writer.ledger_id)
                raise AssertionError("the ledger is still there")
