"""Who may bring a ledger into being: the metadata vouch for it, or the connection has logged in."""

from __future__ import annotations

import asyncio

import pytest

from ledger.bookie.births import ANY_KEY, BirthLimits, Births
from ledger.bookie.server import ServerSettings
from ledger.core.key_questions import AskerRank, QuestionLimits
from ledger.errors import CorruptMetadataError, MetadataUnavailableError
from ledger.wire import packets as p
from ledger.wire import v2
from ledger.wire.codes import Status
from ledger.wire.digests import master_key
from ledger.wire.sasl_digest import PLUGIN, ClientLogin
from tests.unit.ledger.bookie.bookie_bench import KEY, OK, Bench, Client, add, fence, read

OTHER = master_key(b"other")


class Metadata:
    """Answers when it is told to.

    Attributes:
        keys: Ledgers by id.
        asked: Questions so far.
        is_held: Questions wait until this is cleared.

    """

    def __init__(self, keys: dict[int, bytes] | None = None) -> None:
        self.keys = keys or {}
        self.asked: list[int] = []
        self.error: Exception | None = None
        self.is_held = False

    async def find(self, ledger_id: int) -> bytes | None:
        self.asked.append(ledger_id)
        found, error = self.keys.get(ledger_id), self.error  # As of now: an answer on its way may be old.
        while self.is_held:
            await asyncio.sleep(0)
        if error is not None:
            raise error
        return found


def served(scenario, metadata: Metadata, *, version: int = 3, limits: BirthLimits | None = None, **settings) -> None:
    async def run() -> None:
        bench = Bench(find_key=metadata.find, **settings)
        await bench.start()
        if limits is not None:
            bench.server.births = Births(metadata.find, limits)
        await scenario(bench, Client(bench, version))

    asyncio.run(run())


@pytest.mark.parametrize("version", [2, 3])
def test_the_first_add_of_a_ledger_with_its_password_is_taken_and_asked_for_once(version: int) -> None:
    metadata = Metadata({7: KEY})

    async def scenario(bench: Bench, client: Client) -> None:
        answers = await client.ask(*[add(7, n) for n in range(50)])
        assert [x.status for x in answers] == [OK] * 50
        assert [x.entry_id for x in client.wire.responses] == list(range(50))
        assert metadata.asked == [7]
        await client.ask(add(7, 50))
        assert metadata.asked == [7]
        assert client.connection._births.byte_count == bench.server.frames.held_bytes == 0

    served(scenario, metadata, version=version)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("keys", [{}, {7: OTHER}])
def test_a_stranger_neither_fences_nor_begins_what_the_metadata_do_not_hold_with_his_key(version, keys) -> None:
    metadata = Metadata(keys)

    async def scenario(bench: Bench, client: Client) -> None:
        for request in (fence(7), add(7, 0), add(7, 0, is_recovery=True)):
            assert (await client.ask_one(request)).status == Status.EUA
        assert 7 not in bench.server.store.ledgers
        metadata.keys[7] = OTHER
        writer = Client(bench, version)
        assert (await writer.ask_one(add(7, 0, key=OTHER))).status == OK
        assert (await writer.ask_one(fence(7, key=KEY))).status == Status.EUA
        assert (await writer.ask_one(add(7, 1, key=OTHER))).status == OK

    served(scenario, metadata, version=version)


def test_explicit_lacs_and_fences_are_asked_for_and_plain_reads_are_not() -> None:
    metadata = Metadata({8: KEY})

    async def scenario(bench: Bench, client: Client) -> None:
        assert (await client.ask_one(read(7, 0))).status == Status.ENOLEDGER
        body = (7).to_bytes(8, "big") + (0).to_bytes(8, "big") + bytes(4)
        assert (await client.ask_one(p.WriteLacRequest(1, 7, 0, KEY, body))).status == Status.EUA
        assert metadata.asked == [7]
        assert (await client.ask_one(fence(8))).status == Status.ENOENTRY
        assert (await client.ask_one(add(8, 0))).status == Status.EFENCED
        assert (await client.ask_one(add(8, 0, is_recovery=True))).status == OK
        assert (await client.ask_one(fence(9, key=b""))).status == Status.EUA
        assert metadata.asked == [7, 8]

    served(scenario, metadata)


def test_a_ledger_of_old_metadata_without_a_password_takes_the_first_key() -> None:
    async def scenario(bench: Bench, client: Client) -> None:
        assert (await client.ask_one(add(7, 0, key=OTHER))).status == OK
        assert (await client.ask_one(add(7, 1))).status == Status.EUA

    served(scenario, Metadata({7: ANY_KEY}))


@pytest.mark.parametrize("error", [MetadataUnavailableError("away"), CorruptMetadataError("rotten")])
def test_without_an_answer_of_the_metadata_it_is_too_many_requests_and_never_yes(error: Exception) -> None:
    metadata = Metadata({7: KEY})
    metadata.error = error

    async def scenario(bench: Bench, client: Client) -> None:
        bench.server.births._keep(1, KEY, 1e18)
        assert (await client.ask_one(add(1, 0))).status == OK
        for request in (add(7, 0), fence(7), add(7, 0, is_recovery=True)):
            assert (await client.ask_one(request)).status == Status.ETOOMANYREQUESTS
        assert (await client.ask_one(add(1, 1))).status == OK
        metadata.error = None
        bench.server.births._away_until_s = 0.0
        assert (await client.ask_one(add(7, 0))).status == OK

    served(scenario, metadata)


def test_a_question_that_is_not_answered_ends_and_known_ledgers_go_on_meanwhile() -> None:
    metadata = Metadata({1: KEY, 7: KEY})

    async def scenario(bench: Bench, client: Client) -> None:
        await client.ask(add(1, 0))
        metadata.is_held = True
        client.send(*[add(7, n, txn=100 + n) for n in range(5)])
        for n in range(1, 20):
            client.send(add(1, n))
            await bench.until(lambda n=n: len(client.wire.responses) == 1 + n)
        assert {x.ledger_id for x in client.wire.responses} == {1}
        await asyncio.sleep(0.06)
        await bench.until(lambda: len(client.wire.responses) == 25)
        assert [x.status for x in client.wire.responses[20:]] == [Status.ETOOMANYREQUESTS] * 5

    served(scenario, metadata, limits=BirthLimits(answer_s=0.05))


def test_20000_ids_of_a_stranger_are_a_few_questions_and_a_writers_new_ledger_does_not_wait_for_them() -> None:
    metadata = Metadata(dict.fromkeys(range(1_000_000, 1_000_100), KEY))

    async def scenario(bench: Bench, client: Client) -> None:
        client.send_bytes(b"".join(v2.encode_request(fence(n, key=OTHER)) for n in range(20_000)))
        writer = Client(bench, 2)
        for n in range(1_000_000, 1_000_100):
            assert (await writer.ask_one(add(n, 0))).status == OK
        foreign = [n for n in metadata.asked if n < 20_000]
        assert 1 <= len(foreign) <= 200  # They take turns with the writer, whose ledgers are 100.
        assert not client.connection._transport.is_reading  # It waits, in its socket.
        assert not any(n < 20_000 for n in bench.server.store.ledgers)
        assert bench.server.frames.held_bytes < 1_000
        client.connection.connection_lost(None)
        assert len(bench.server.births._questions) <= 1

    served(scenario, metadata, version=2)


def test_a_no_that_was_asked_for_a_stranger_does_not_hit_the_writer_who_has_created_the_ledger_meanwhile() -> None:
    metadata = Metadata()

    async def scenario(bench: Bench, client: Client) -> None:
        metadata.is_held = True
        client.send(fence(7, key=OTHER))
        await bench.settle()
        metadata.keys[7] = KEY
        writer = Client(bench)
        writer.send(add(7, 0))
        await bench.settle()
        metadata.is_held = False
        await bench.until(lambda: len(writer.wire.responses) == len(client.wire.responses) == 1)
        assert (writer.wire.responses[0].status, client.wire.responses[0].status) == (OK, Status.EUA)

    served(scenario, metadata)


def test_a_user_who_logged_in_is_taken_at_his_word() -> None:
    metadata = Metadata()

    async def scenario(bench: Bench, client: Client) -> None:
        login, payload = ClientLogin("hd", "testpwd", "nonce"), b""
        while payload is not None:
            response = await client.ask_one(p.AuthRequest(0, PLUGIN, payload))
            payload = login.step(response.payload)
        assert client.connection._admission.may_write_unknown_ledgers
        assert (await client.ask_one(fence(7))).status == Status.ENOENTRY
        assert (await client.ask_one(add(8, 0))).status == OK
        assert metadata.asked == []

    served(scenario, metadata, server=ServerSettings(users={"hd": "testpwd"}))


def test_who_logs_in_where_nobody_must_is_nobody() -> None:
    async def scenario(bench: Bench, client: Client) -> None:
        assert (await client.ask_one(p.AuthRequest(0, PLUGIN, b"anything"))).status == OK
        assert (await client.ask_one(fence(7))).status == Status.EUA

    served(scenario, Metadata())


def test_too_much_of_one_new_ledger_waits_in_the_socket() -> None:
    metadata = Metadata({7: KEY})

    async def scenario(bench: Bench, client: Client) -> None:
        metadata.is_held = True
        frames = [v2.encode_request(add(7, n, size=1_000_000)) for n in range(20)]
        for frame in frames:
            client.send_bytes(frame)
        await bench.settle()
        assert bench.server.frames.held_bytes <= 4 << 20
        metadata.is_held = False
        await bench.until(lambda: len(client.wire.responses) == 20)
        assert [(x.entry_id, x.status) for x in client.wire.responses] == [(n, OK) for n in range(20)]
        assert bench.server.frames.held_bytes == 0

    served(scenario, metadata, version=2, journal={"file_bytes": 1 << 25})


def test_ranks_follow_the_answers() -> None:
    metadata = Metadata({7: KEY, 8: KEY})

    async def scenario(bench: Bench, client: Client) -> None:
        await client.ask(add(7, 0))
        assert client.connection._births.rank == AskerRank.PROVEN
        await client.ask(fence(100), fence(101))
        assert client.connection._births.rank == AskerRank.REFUSED

    limits = BirthLimits(questions=QuestionLimits(refused_per_s=1e6))
    served(scenario, metadata, limits=limits)


def test_answers_that_come_while_ledgers_are_fetched_have_none_fetched_twice() -> None:
    metadata = Metadata(dict.fromkeys(range(600), KEY))

    async def scenario(bench: Bench, client: Client) -> None:
        await client.ask(add(0, 0))
        metadata.is_held = True
        client.send(*[add(n, 0, txn=n) for n in range(1, 30)])
        await bench.settle()
        loads: list[asyncio.Future] = []
        fetched: list[int] = []
        load = bench.server.store.resident.load

        def load_later(ledger_ids):
            fetched.extend(ledger_ids)
            loads.append(asyncio.get_running_loop().create_future())
            return loads[-1]

        bench.server.store.resident.load = load_later
        client.send(*[add(n, 0, txn=n) for n in range(30, 600)])
        metadata.is_held = False
        await bench.settle()
        assert fetched == list(range(30, 600))
        bench.server.store.resident.load = load
        await load(fetched)
        loads[0].set_result(None)
        await bench.until(lambda: len(client.wire.responses) == 600)
        assert {x.status for x in client.wire.responses} == {OK}

    served(scenario, metadata, version=2, journal={"file_bytes": 1 << 22})
