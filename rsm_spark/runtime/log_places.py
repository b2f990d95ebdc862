"""Finds the entry of a log that holds a revision: by the chain, then by halving a ledger."""

from __future__ import annotations

from ledger.client.client import LedgerClient
from rsm_spark.core.chain import LogChain, last_entry_of
from rsm_spark.core.envelope import Envelope, decode_envelope
from rsm_spark.core.position import LogPosition
from rsm_spark.core.seal import KeyRing, ledger_password
from rsm_spark.errors import CorruptLogError, MissingLogError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.commit_log import LogReader, shown_place


async def reader_at(
    client: LedgerClient,
    chains: ChainStore,
    revision: int,
    *,
    password: bytes | None = b"",
    keys: KeyRing | None = None,
    poll_s: float = 1.0,
    entries_max: int = 256,
) -> LogReader:
    """Return a reader whose first entry is the one that holds a revision, or what follows it if it holds records.

    Args:
        client: Ledger client.
        chains: Chain of the log.
        revision: 1 or more; it may be one that the log does not have yet.
        password: See `LogReader`.
        keys: See `LogReader`.
        poll_s: See `LogReader`.
        entries_max: See `LogReader`.

    Raises:
        MissingLogError: That part of the log has been trimmed; its `last_revision` + 1 is the first that is there.
        LedgerError, MetadataError: Bookies or metadata store cannot be asked.

    """
    chain, _ = await chains.read()
    ledger_id, before = _ledger_of(chain, revision, chains.log_name)
    if ledger_id is None:
        return LogReader(client, chains, password=password, keys=keys, poll_s=poll_s, entries_max=entries_max)
    handle = await client.open_no_recovery(ledger_id, password=ledger_password(chain, ledger_id, keys, password))
    aside = {entry.entry_id for entry in chain.quarantined if entry.ledger_id == ledger_id}
    try:
        if handle.is_closed:
            named = next(ledger for ledger in chain.ledgers if ledger.ledger_id == ledger_id)
            last = last_entry_of(named, handle.metadata.last_entry_id)
        else:
            lac = await handle.read_lac()
            last = max(lac.last_add_confirmed, lac.explicit_lac)
        low, high = 0, last + 1  # The entry looked for is in [low, high]; `last` + 1 stands for "not there yet".
        while low < high:
            middle = (low + high) // 2
            seen = next((place for place in range(middle, low - 1, -1) if place not in aside), None)
            if seen is None:  # All up to the middle is set aside.
                low = middle + 1
                continue
            envelope = _envelope_of((await handle.read(seen, seen))[0].payload, LogPosition(ledger_id, seen), chains)
            if envelope.last_revision >= revision:
                high = seen
            else:
                low, before = middle + 1, envelope.last_revision
    finally:
        await handle.close()
    place = LogPosition(ledger_id, low - 1)
    return LogReader(
        client,
        chains,
        password=password,
        keys=keys,
        position=place,
        revision=before,
        poll_s=poll_s,
        entries_max=entries_max,
    )


def _envelope_of(payload: bytes | memoryview, place: LogPosition, chains: ChainStore) -> Envelope:
    try:
        return decode_envelope(payload)
    except CorruptLogError as error:
        raise CorruptLogError(f"log {chains.log_name}: {shown_place(place)}: {error}") from error


def _ledger_of(chain: LogChain, revision: int, log_name: str) -> tuple[int | None, int]:
    """Return the ledger that holds a revision, or will, and the revision before it; None for a log without ledgers."""
    found = None
    for ledger in chain.ledgers:
        if found is None or ledger.first_revision <= revision:
            found = ledger
    if found is None:
        return None, 0
    first = chain.ledgers[0]
    if found.first_revision > revision and not chain.is_whole:
        raise MissingLogError(
            f"log {log_name}: revision {revision} has left the log; the first that is there is {first.first_revision}",
            first_revision=revision,
            last_revision=first.first_revision - 1,
        )
    return found.ledger_id, found.first_revision - 1
