"""Sets an entry aside that no leader of the log wrote: judged from bookies and chain alone, written by a claim.

An entry may be set aside only if it is certainly not the log's: its ledger is closed, so that the entry stays where it
is, and it cannot be read, or does not continue what lies before it, or its seal is not of the log's key. Whoever claims
the chain raises its epoch: a leader that still lives is deposed and reads the log anew. The first entry of the next
leader tells who did it (`told_by_next_leader`): exactly once, since that entry is of a later epoch than the claim.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256

import msgspec

from ledger.client.client import LedgerClient
from ledger.errors import BadVersionError
from ledger.operators import Operator
from rsm_spark.core.chain import Leadership, LogChain, QuarantinedEntry, encode_chain, last_entry_of
from rsm_spark.core.commands import Audited
from rsm_spark.core.envelope import body_of, decode_envelope, entry_hash, root_hash
from rsm_spark.core.records import decode_records
from rsm_spark.core.seal import ForeignEntryError, KeyRing, UnknownKeyError, check_seal
from rsm_spark.errors import ChainConflictError, CorruptLogError, LogError
from rsm_spark.log.chain_store import ChainStore

_ATTEMPTS = 5


class _Before(msgspec.Struct, frozen=True):
    """Values that an entry has to continue; the hash is None where the log no longer has it."""

    prefix_hash: bytes | None
    next_revision: int


async def quarantine_entry(
    client: LedgerClient,
    chains: ChainStore,
    entry: QuarantinedEntry,
    *,
    incarnation: str,
    keep: Callable[[bytes], None],
    keys: KeyRing | None = None,
    accept_unknown_key: bool = False,
) -> tuple[QuarantinedEntry, str]:
    """Set an entry aside; once it is, this says so again.

    Args:
        client: Connected ledger client.
        chains: Chain of the log.
        entry: Where it lies, who asks, when and why; hash and length are filled in.
        incarnation: 32 hex digits, drawn anew: of whoever claims the chain.
        keep: Keeps the payload as evidence; called before the chain is written.
        keys: Of the log, if it has a key.
        accept_unknown_key: An entry of a key that is not in the ring is foreign: somebody has looked.

    Returns:
        What stands in the chain, and what was found wrong with the entry ("" if it was set aside before).

    Raises:
        LogError: It is the log's own, or nobody can tell; nothing was changed.
        ChainConflictError: The chain was written by others each time; nothing was changed.
        LedgerError, MetadataError: Bookies or metadata store cannot be asked.

    """
    for _ in range(_ATTEMPTS):
        chain, version = await chains.read()
        place = (entry.ledger_id, entry.entry_id)
        known = next((one for one in chain.quarantined if (one.ledger_id, one.entry_id) == place), None)
        if known is not None:
            return known, ""
        payload, before = await _read(client, chain, chains.log_name, entry)
        wrong = _judge(chain, chains.log_name, entry, payload, before, keys, accept_unknown_key=accept_unknown_key)
        aside = msgspec.structs.replace(
            entry, sha256=sha256(payload).hexdigest(), length=len(payload), epoch=chain.leader_epoch + 1
        )
        keep(payload)
        claimed = msgspec.structs.replace(
            chain,
            leader_epoch=chain.leader_epoch + 1,
            leader=Leadership(entry.by, incarnation),
            quarantined=(*chain.quarantined, aside),
        )
        try:
            await chains.write(encode_chain(claimed), version)
        except BadVersionError:
            continue
        return aside, wrong
    raise ChainConflictError(f"log {chains.log_name}: its chain was written by others {_ATTEMPTS} times: try again")


def told_by_next_leader(chain: LogChain, last_epoch: int, log_name: str) -> list[Audited]:
    """Return who set entries aside since the last leader began, for the first entry of a leadership.

    Args:
        chain: As this leader has claimed it.
        last_epoch: Of the last entry of the log.
        log_name: Of the log.

    """
    return [
        Audited(
            one.by,
            "operator",
            Operator(one.by, one.zookeeper).source,
            "rsm log quarantine",
            f"log {log_name}: ledger {one.ledger_id} entry {one.entry_id}: {one.reason}",
            f"done at {datetime.fromtimestamp(one.at_ms / 1000, UTC).isoformat(timespec='seconds')}",
        )
        for one in chain.quarantined
        if one.epoch > last_epoch
    ]


async def _read(client: LedgerClient, chain: LogChain, log_name: str, entry: QuarantinedEntry) -> tuple[bytes, _Before]:
    """Return the payload of the entry, and what it has to continue."""
    ledger_id, entry_id = entry.ledger_id, entry.entry_id
    index = next((i for i, one in enumerate(chain.ledgers) if one.ledger_id == ledger_id), None)
    if index is None:
        raise LogError(f"log {log_name}: its chain names no ledger {ledger_id}: rsm log info {log_name}")
    handle = await client.open_no_recovery(ledger_id, password=None)
    try:
        if not handle.is_closed:
            raise LogError(
                f"log {log_name}: ledger {ledger_id} is open, and its end is not decided. Start a replica: it "
                "closes the ledger, and names the entry if no leader wrote it"
            )
        last = last_entry_of(chain.ledgers[index], handle.metadata.last_entry_id)
        if not 0 <= entry_id <= last:
            raise LogError(f"log {log_name}: ledger {ledger_id} has entries 0 to {last}, there is no {entry_id}")
        payload = bytes((await handle.read(entry_id, entry_id))[0].payload)
        aside = {one.entry_id for one in chain.quarantined if one.ledger_id == ledger_id}
        previous = next((one for one in range(entry_id - 1, -1, -1) if one not in aside), None)
        if previous is not None:
            earlier = bytes((await handle.read(previous, previous))[0].payload)
            return payload, _Before(entry_hash(earlier), decode_envelope(earlier).last_revision + 1)
    finally:
        await handle.close()
    return payload, _Before(_hash_before(chain, index), chain.ledgers[index].first_revision)


def _hash_before(chain: LogChain, index: int) -> bytes | None:
    """Return the hash of the log before a ledger, as far as the chain knows it."""
    if index > 0:
        closed = chain.ledgers[index - 1].closed
        return None if closed is None else bytes.fromhex(closed.prefix_hash)
    return root_hash(chain.ancestry.root) if chain.is_whole else None


def _judge(
    chain: LogChain,
    log_name: str,
    entry: QuarantinedEntry,
    payload: bytes,
    before: _Before,
    keys: KeyRing | None,
    *,
    accept_unknown_key: bool,
) -> str:
    """Return what is wrong with an entry.

    Raises:
        LogError: Nothing is, or nobody can tell.

    """
    place = f"log {log_name}: ledger {entry.ledger_id} entry {entry.entry_id}"
    ledger = next(one for one in chain.ledgers if one.ledger_id == entry.ledger_id)
    try:
        envelope = decode_envelope(payload)
        records = decode_records(body_of(payload))
    except CorruptLogError as error:
        return str(error)
    if len(records) != envelope.record_count:
        return f"it names {envelope.record_count} records and holds {len(records)}"
    if envelope.log_id != chain.ancestry.at(envelope.first_revision):
        return f"it is of log {envelope.log_id.hex()}"
    if before.prefix_hash is not None and envelope.prefix_hash != before.prefix_hash:
        return f"it continues prefix hash {envelope.prefix_hash.hex()}, before it is {before.prefix_hash.hex()}"
    if envelope.first_revision != before.next_revision:
        return f"it begins with revision {envelope.first_revision}, {before.next_revision} is next"
    if ledger.key_id and not envelope.key_id:
        return "it has no seal, as every entry of this ledger has"
    if not envelope.key_id:
        raise LogError(f"{place} continues the log, and the log has no key: nobody can tell whether it is foreign")
    if keys is None:
        raise LogError(f"{place} is sealed: only the log's key tells whether it is foreign: give --log-key FILE")
    if envelope.leader_epoch != ledger.leader_epoch:
        return f"it was sealed in epoch {envelope.leader_epoch}, its ledger is of epoch {ledger.leader_epoch}"
    try:
        check_seal(payload, envelope, keys, envelope.log_id)
    except UnknownKeyError as error:
        if accept_unknown_key:
            return str(error)
        raise LogError(
            f"{place}: {error}. If no key file of this log ever had that key: --unknown-key says so"
        ) from None
    except ForeignEntryError as error:
        return str(error)
    raise LogError(f"{place} is the log's own: it continues the log, and its seal is right. It stays")
