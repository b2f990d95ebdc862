"""A log with a key, on simulated replicas: who seals, when a key changes, and what is not believed."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ledger.errors import UsageError
from rsm_spark.core.admission import LogKeyError
from rsm_spark.core.chain import LogChain, QuarantinedEntry, encode_chain
from rsm_spark.core.envelope import HEADER_BYTES, Envelope, body_of, decode_envelope, encode_envelope, entry_hash
from rsm_spark.core.records import KernelRecord, Record, decode_records, encode_records
from rsm_spark.core.seal import ForeignEntryError, KeyRing, LogKey, check_seal, key_id_of
from rsm_spark.errors import CorruptLogError, ForkedLogError
from rsm_spark.log.admin_requests import AdminRequests, AdoptKeyRequest
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.quarantine import quarantine_entry
from rsm_spark.runtime.settings import ReplicaSettings
from rsm_spark.runtime.status import ReplicaRole
from rsm_spark.server.process import check_exposure
from rsm_spark.server.replica_server import StoreSettings
from rsm_spark.testing.cluster import LOG
from rsm_spark.testing.ledger_twin import TwinClient
from rsm_spark.testing.ledger_world import LedgerTwin, TwinEntry
from tests.unit.rsm_spark.runtime.log_world import LogWorld, run


def _key(number: int) -> LogKey:
    secret = bytes([number]) * 32
    return LogKey(key_id_of(secret), secret, lambda message: sha256(secret + message).digest() * 2, bytes(32))


def _ring(*numbers: int) -> KeyRing:
    return KeyRing([_key(number) for number in numbers])


def _payloads(world: LogWorld, chain: LogChain) -> list[bytes]:
    return [entry.payload for one in chain.ledgers for entry in world.ledgers.ledgers[one.ledger_id].entries]


def _store(twin: LedgerTwin, payload: bytes) -> int:
    """Put an entry behind the last one on the bookies, as who reaches their ports can."""
    before = twin.entries[-1] if twin.entries else None
    length = (before.length if before else 0) + len(payload)
    entry_id = len(twin.entries)
    twin.entries.append(TwinEntry(entry_id, entry_id - 1, length, payload))
    twin.stored = entry_id + 1
    return entry_id


async def _crash_all(world: LogWorld) -> tuple[LogChain, LedgerTwin]:
    """Crash every replica for a moment; return the chain and the ledger that was being written."""
    chain = await world.chain()
    for host in world.cluster.hosts:
        host.kill()
    return chain, world.ledgers.ledgers[chain.ledgers[-1].ledger_id]


def _forged(twin: LedgerTwin, chain: LogChain, **changes: Any) -> bytes:
    """Return an entry that continues the log in every respect, but for the seal."""
    last = twin.entries[-1].payload
    envelope = decode_envelope(last)
    records = encode_records([Record(KernelRecord.SESSION_EXPIRED, None, (b"s" * 16,))])
    forged = Envelope(
        envelope.log_id, envelope.leader_epoch, envelope.last_revision + 1, envelope.last_revision,
        envelope.logged_ms, 1, entry_hash(last), envelope.key_id,
    )  # fmt: skip
    forged = msgspec.structs.replace(forged, **changes)
    seal = last[-40:] if forged.key_id else b""
    return encode_envelope(forged, records) + seal


async def _stopped(world: LogWorld, count: int) -> list[BaseException]:
    """Wait until so many replicas have stopped by themselves; return why."""
    stopped = world.cluster.stopped
    await world.until(lambda: len({name for name, _ in stopped}) >= count)
    return [why for _, why in stopped if isinstance(why, BaseException)]


async def _quarantine(world: LogWorld, ledger_id: int, entry_id: int) -> None:
    chains = ChainStore(world.store, LOG)
    chain, version = await chains.read()
    payload = world.ledgers.ledgers[ledger_id].entries[entry_id].payload
    aside = QuarantinedEntry(ledger_id, entry_id, sha256(payload).hexdigest(), len(payload), 0, "test", "forged")
    changed = msgspec.structs.replace(chain, leader_epoch=chain.leader_epoch + 1, quarantined=(aside,))
    await chains.write(encode_chain(changed), version)


def test_every_entry_of_a_new_log_is_sealed_and_every_ledger_has_a_password_of_the_key() -> None:
    ring = _ring(1)

    async def scenario(world: LogWorld) -> None:
        await world.roll()
        world.leader_host.kill()
        await world.until_led()
        await world.add()
        chain = await world.chain()
        assert (chain.format_level, chain.key_id) == (2, ring.newest.key_id)
        assert {ledger.key_id for ledger in chain.ledgers} == {ring.newest.key_id}
        log_id = bytes.fromhex(chain.log_id)
        signed = 0
        for payload in _payloads(world, chain):
            assert check_seal(payload, decode_envelope(payload), ring, log_id) == entry_hash(payload)
            signed += sum(record.type == KernelRecord.CHECKPOINT_SIGNED for record in decode_records(body_of(payload)))
        assert signed
        password = ring.password(ring.newest.key_id, chain.log_id)
        for ledger in chain.ledgers:
            metadata = world.ledgers.ledgers[ledger.ledger_id].metadata
            assert metadata.password == password
            assert metadata.custom["rsm_key_id"] == ring.newest.key_id.encode()

    run(scenario, log_keys=ring, roll_records=10, checkpoint_records=5)


def test_a_changed_byte_anywhere_breaks_the_seal() -> None:
    ring = _ring(1)

    async def scenario(world: LogWorld) -> None:
        await world.add()
        chain = await world.chain()
        payload = _payloads(world, chain)[-1]
        for place in (20, 40, HEADER_BYTES - 1, HEADER_BYTES + 3, len(payload) - 1):
            changed = bytearray(payload)
            changed[place] ^= 1
            with pytest.raises(ForeignEntryError):
                check_seal(bytes(changed), decode_envelope(payload), ring, bytes.fromhex(chain.log_id))
        with pytest.raises(ForeignEntryError):
            check_seal(payload, decode_envelope(payload), ring, bytes(16))  # Of another log with this key file.

    run(scenario, log_keys=ring)


@pytest.mark.parametrize(
    "forge",
    [
        pytest.param(_forged, id="with the seal of another entry"),
        pytest.param(lambda twin, chain: _forged(twin, chain, key_id=b""), id="of the format without a seal"),
        pytest.param(lambda twin, chain: _forged(twin, chain, key_id=bytes(8)), id="of a key that nobody has"),
        pytest.param(lambda twin, chain: twin.entries[-1].payload, id="the last one again"),
        pytest.param(lambda twin, chain: b"\xee" * 80, id="rubbish"),
    ],
)
def test_a_foreign_entry_is_refused_by_name_and_set_aside_the_log_goes_on(forge: Any) -> None:
    async def scenario(world: LogWorld) -> None:
        before = await world.add()
        await asyncio.sleep(1)
        chain, twin = await _crash_all(world)
        entry_id = _store(twin, forge(twin, chain))
        reasons = await _stopped(world, 3)
        place = f"ledger {twin.ledger_id} entry {entry_id}"
        assert reasons
        assert all(
            isinstance(reason, CorruptLogError | ForkedLogError) and place in str(reason) for reason in reasons
        ), reasons
        await _quarantine(world, twin.ledger_id, entry_id)
        await world.until_led()
        assert await world.add() > before  # The forged record would have ended the session.

    run(scenario, log_keys=_ring(1), limit_s=900.0)


def test_rubbish_in_a_log_without_a_key_is_named_and_set_aside_too() -> None:
    async def scenario(world: LogWorld) -> None:
        await world.add()
        _, twin = await _crash_all(world)
        entry_id = _store(twin, b"\xee" * 80)
        reasons = await _stopped(world, 3)
        place = f"ledger {twin.ledger_id} entry {entry_id}: entry of 80 bytes is shorter than an envelope"
        assert all(place in str(reason) for reason in reasons), reasons
        assert "rsm log quarantine" in str(reasons[0])
        await _quarantine(world, twin.ledger_id, entry_id)
        await world.until_led()
        await world.add()
        assert not (await world.chain()).key_id

    run(scenario, limit_s=900.0)


def test_another_entry_than_the_one_set_aside_is_not_passed_over() -> None:
    async def scenario(world: LogWorld) -> None:
        await world.add()
        _, twin = await _crash_all(world)
        entry_id = _store(twin, b"\xee" * 80)
        await _stopped(world, 3)
        await _quarantine(world, twin.ledger_id, entry_id)
        twin.entries[entry_id] = msgspec.structs.replace(twin.entries[entry_id], payload=b"\xef" * 80)
        world.cluster.stopped.clear()
        reasons = await _stopped(world, 3)
        assert all("another entry lies there" in str(reason) for reason in reasons), reasons

    run(scenario, limit_s=900.0)


def test_a_log_of_before_is_given_a_key_while_it_runs() -> None:
    ring = _ring(1)

    async def scenario(world: LogWorld) -> None:
        await world.add()
        cluster = world.cluster
        orders = AdminRequests(world.store, LOG)
        assert "was given no key" in (await orders.place(AdoptKeyRequest(), timeout_s=30)).refusal
        cluster.settings = msgspec.structs.replace(cluster.settings, log_keys=ring)
        first = world.leader_host
        first.kill()
        await world.until_led()
        await world.until(lambda: len(cluster.replicas) == 3)
        refusal = (await orders.place(AdoptKeyRequest(), timeout_s=30)).refusal
        assert refusal
        for host in cluster.hosts:
            if host is not first:
                host.kill()
        await world.until_led()
        await world.until(lambda: len(cluster.replicas) == 3)
        unsealed = await world.add()
        assert not (await world.chain()).key_id
        answer = await orders.place(AdoptKeyRequest(), timeout_s=30)
        assert answer.outcome == {"key_id": ring.newest.key_id}, answer
        sealed = await world.add()
        await world.until(lambda: all(replica.revision >= sealed for replica in cluster.replicas.values()))
        chain = await world.chain()
        assert (chain.format_level, chain.key_id) == (2, ring.newest.key_id)
        assert [bool(ledger.key_id) for ledger in chain.ledgers][-2:] == [False, True]
        for payload in _payloads(world, chain):
            envelope = decode_envelope(payload)
            assert envelope.key_id or envelope.last_revision <= sealed
            assert not envelope.key_id or envelope.first_revision > unsealed
        world.leader_host.kill()  # The ledgers of before are still read with the password of before.
        await world.until_led()
        await world.add()

    run(scenario, limit_s=900.0)


def test_an_unsealed_entry_after_the_adoption_is_refused_although_the_format_says_it_has_no_seal() -> None:
    async def scenario(world: LogWorld) -> None:
        await world.add()
        chain, twin = await _crash_all(world)
        _store(twin, _forged(twin, chain, key_id=b""))
        # Who may write the metadata store says besides that the log never had a key.
        chains = ChainStore(world.store, LOG)
        read, version = await chains.read()
        ledgers = tuple(msgspec.structs.replace(one, key_id="") for one in read.ledgers)
        await chains.write(encode_chain(msgspec.structs.replace(read, key_id="", ledgers=ledgers)), version)
        reasons = await _stopped(world, 3)
        assert all(isinstance(reason, LogKeyError | ForeignEntryError) for reason in reasons), reasons

    run(scenario, log_keys=_ring(1), limit_s=900.0)


def test_a_replica_without_the_key_of_the_log_refuses_to_start() -> None:
    async def scenario(world: LogWorld) -> None:
        await world.add()
        cluster = world.cluster
        cluster.settings = msgspec.structs.replace(cluster.settings, log_keys=None)
        next(host for host in cluster.hosts if host.name != cluster.leader).kill()
        (reason, *_) = await _stopped(world, 1)
        assert isinstance(reason, LogKeyError)
        assert "--log-key" in str(reason)
        assert await world.add()

    run(scenario, log_keys=_ring(1), limit_s=900.0)


def test_a_newer_key_seals_once_every_live_replica_has_it() -> None:
    old, new = _ring(1), _ring(1, 2)

    async def scenario(world: LogWorld) -> None:
        await world.add()
        leader = world.leader
        held = leader._context.settings.log_keys
        assert held is old
        old.replace([_key(1), _key(2)])  # All replicas of the simulation read one file.
        await world.until_key(new.newest.key_id)
        revision = await world.add()
        await world.until(lambda: all(one.revision >= revision for one in world.cluster.replicas.values()))
        chain = await world.chain()
        assert [ledger.key_id for ledger in chain.ledgers] == [_key(1).key_id, _key(2).key_id]
        assert decode_envelope(_payloads(world, chain)[-1]).key_id.hex() == new.newest.key_id
        world.leader_host.kill()
        await world.until_led()
        await world.add()

    run(scenario, log_keys=old, limit_s=900.0)


def test_beyond_loopback_a_log_without_a_key_is_refused_unless_that_is_meant(tmp_path: Path) -> None:
    def settings(**replica: Any) -> StoreSettings:
        return StoreSettings(log="orders", replica_id="a", data_dir=tmp_path, replica=ReplicaSettings(**replica))

    check_exposure(settings(), ["127.0.0.1:2181", "[::1]:3181", "localhost:3182"])
    with pytest.raises(UsageError, match=r"whoever reaches 10\.0\.0\.7:3181 can forge .*--log-key FILE.*--unsigned"):
        check_exposure(settings(), ["127.0.0.1:2181", "10.0.0.7:3181"])
    check_exposure(settings(allow_unsigned=True), ["bookies.example.org:3181"])
    check_exposure(settings(log_keys=_ring(1)), ["bookies.example.org:3181"])


@pytest.mark.parametrize("seed", range(4))
def test_who_set_an_entry_aside_is_in_the_log_exactly_once_however_many_leaders_begin(seed: int) -> None:
    async def scenario(world: LogWorld) -> None:
        await world.add()
        chain, twin = await _crash_all(world)
        entry_id = _store(twin, _forged(twin, chain))
        await _stopped(world, 3)
        wanted = QuarantinedEntry(twin.ledger_id, entry_id, "", 0, 1_000, "ann@host", "forged", zookeeper="digest:ops")
        client = TwinClient(world.ledgers, world.store)
        await quarantine_entry(
            client,  # type: ignore[arg-type]
            ChainStore(world.store, LOG),
            wanted,
            incarnation="00" * 16,
            keep=lambda _: None,
            keys=world.cluster.settings.log_keys,
        )
        for number in range(6):
            # Killed at any point of its beginning: before its first entry, behind it, while it serves.
            await world.until(
                lambda: any(one.role is not ReplicaRole.FOLLOWER for one in world.cluster.replicas.values())
            )
            await asyncio.sleep(0.004 * number * (seed + 1))
            for name, replica in list(world.cluster.replicas.items()):
                if replica.role is not ReplicaRole.FOLLOWER:
                    world.simulation.hosts[name].kill()
        await world.until_led()
        await world.add()
        chain = await world.chain()
        told = [
            record.fields
            for one in chain.ledgers
            for place, entry in enumerate(world.ledgers.ledgers[one.ledger_id].entries)
            if (one.ledger_id, place) != (twin.ledger_id, entry_id)
            for record in decode_records(body_of(entry.payload))
            if record.type == KernelRecord.AUDITED
        ]
        place = f"log {LOG}: ledger {twin.ledger_id} entry {entry_id}: forged"
        assert told == [
            ("ann@host", "operator", "metadata store as digest:ops", "rsm log quarantine", place,
             "done at 1970-01-01T00:00:01+00:00")
        ]  # fmt: skip

    run(scenario, log_keys=_ring(1), limit_s=900.0, seed=seed + 1)
