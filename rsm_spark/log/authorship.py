"""Authorship of a log, proven with the leaders' public keys alone, up to the last checkpoint that they signed.

The hash of every entry is in the next one, and a signed checkpoint names the hash of all before it: one signature
vouches for the whole history up to its revision, also for what has been trimmed since.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ledger.client.client import LedgerClient
from rsm_spark.core.chain import Ancestry
from rsm_spark.core.envelope import body_of, entry_hash, root_hash
from rsm_spark.core.position import LogPosition
from rsm_spark.core.records import KernelRecord, Record, decode_records
from rsm_spark.core.seal import ForeignEntryError, KeyRing, checkpoint_message
from rsm_spark.errors import CorruptLogError, ForkedLogError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.commit_log import LogEntry, LogReader, shown_place
from rsm_spark.log.signatures import verify_signature


class Authorship(msgspec.Struct):
    """Findings of a proof of authorship.

    Attributes:
        log, log_id: Which log.
        first_revision: First record that is left of it.
        last_revision: Last record read.
        entries: Read; their hashes continue each other.
        prefix_hash: Hash after the last one, hex.
        signatures: Checkpoints whose signature is right.
        proven_revision: Of the last one of those: up to here the log is the key holder's. 0 = nothing is proven.
        proven_hash: Hash of the log up to there, hex.
        proven_ms: Logged time of that checkpoint.
        unknown_keys: Ids of keys that signed, but are not in the auditor's file.
        quarantined: Entries that the chain sets aside.

    """

    log: str
    log_id: str
    first_revision: int = 0
    last_revision: int = 0
    entries: int = 0
    prefix_hash: str = ""
    signatures: int = 0
    proven_revision: int = 0
    proven_hash: str = ""
    proven_ms: int = 0
    unknown_keys: list[str] = []
    quarantined: int = 0


def signed_checkpoint(records: list[Record], log_id: bytes, prefix_hash: bytes, logged_ms: int) -> tuple[
    int, bytes, bytes, bytes
] | None:  # fmt: skip
    """Return (revision, key id, signature, signed message) of the signed checkpoint that an entry holds, or None.

    Args:
        records: Of the entry.
        log_id: Of the log, 16 bytes.
        prefix_hash: Hash of the log before the entry, as found, not as it says.
        logged_ms: Logged time of the entry.

    Raises:
        CorruptLogError: The records are none of the kernel's.

    """
    checkpoint: tuple[int, bytes, int] | None = None
    for record in records[:3]:  # Behind a description at most.
        try:
            if record.type == KernelRecord.CHECKPOINT_LOGGED:
                revision, digest, row_count = record.fields
                checkpoint = revision, digest, row_count
            elif record.type == KernelRecord.CHECKPOINT_SIGNED and checkpoint is not None:
                key_id, signature = record.fields
                revision, digest, row_count = checkpoint
                message = checkpoint_message(log_id, revision, prefix_hash, digest, row_count, logged_ms)
                return revision, key_id, signature, message
        except (ValueError, msgspec.MsgspecError) as error:
            raise CorruptLogError(f"checkpoint with the fields {record.fields!r}: {error}") from error
    return None


async def verify_authorship(
    client: LedgerClient,
    log: str,
    public_keys: Mapping[str, bytes],
    *,
    rsm_root: str,
    keys: KeyRing | None = None,
) -> Authorship:
    """Read what is left of a log, and prove what can be proven.

    Args:
        client: Connected ledger client.
        log: Name of the log.
        public_keys: By key id; from the auditor's own file, never from the log.
        rsm_root: Root of the logs.
        keys: Of the log: checks every seal besides.

    Raises:
        ForkedLogError, CorruptLogError: The entries do not continue each other, or one is no leader's.
        ForeignEntryError: A signature is not that of the key that it names.
        LedgerError, MetadataError: Bookies or metadata store cannot be asked.

    """
    chains = ChainStore(client.store, log, rsm_root)
    chain, _ = await chains.read()
    found = Authorship(log, chain.log_id, quarantined=len(chain.quarantined))
    if not chain.ledgers:
        return found
    first = chain.ledgers[0]
    found.first_revision, found.last_revision = first.first_revision, first.first_revision - 1
    reader = LogReader(
        client, chains, password=None, keys=keys,
        position=LogPosition(first.ledger_id, -1), revision=first.first_revision - 1,
    )  # fmt: skip
    ancestry = chain.ancestry
    before = root_hash(ancestry.root) if chain.is_whole else None
    try:
        while True:
            entries = await reader.read()
            for entry in entries:
                before = follow_entry(found, entry, before, ancestry, public_keys)
            if not entries and reader.ledgers_ahead == 0:
                return found
    finally:
        await reader.close()


def follow_entry(
    found: Authorship, entry: LogEntry, before: bytes | None, ancestry: Ancestry, public_keys: Mapping[str, bytes]
) -> bytes:
    """Note the next entry of a log, once it is found to continue the one before it; return the hash after it.

    Args:
        found: What was found up to the entry before.
        entry: The next one.
        before: Hash of the log before it; None = not known.
        ancestry: Ids that the log's entries bear.
        public_keys: By key id.

    Raises:
        ForkedLogError, CorruptLogError: It does not continue the log.
        ForeignEntryError: Its signature is not that of the key that it names.

    """
    envelope, place = entry.envelope, f"log {found.log}: {shown_place(entry.position)}"
    log_id = ancestry.at(envelope.first_revision)
    if envelope.log_id != log_id:
        raise ForkedLogError(f"{place} is of log {envelope.log_id.hex()}")
    if before is not None and envelope.prefix_hash != before:
        raise ForkedLogError(f"{place} does not continue the entry before it: the prefix hash differs")
    if envelope.first_revision != found.last_revision + 1:
        raise CorruptLogError(
            f"{place} begins with revision {envelope.first_revision}, {found.last_revision + 1} is next"
        )
    signed = signed_checkpoint(decode_records(body_of(entry.payload)), log_id, envelope.prefix_hash, envelope.logged_ms)
    if signed is not None:
        revision, key_id, signature, message = signed
        public = public_keys.get(key_id.hex())
        if public is None:
            if key_id.hex() not in found.unknown_keys:
                found.unknown_keys.append(key_id.hex())
        elif not verify_signature(public, signature, message):
            raise ForeignEntryError(
                f"{place}: the checkpoint of revision {revision} is not signed by key {key_id.hex()}, as it says: the "
                "log was written by somebody else from some entry on"
            )
        else:
            found.signatures += 1
            found.proven_revision, found.proven_hash = revision, envelope.prefix_hash.hex()
            found.proven_ms = envelope.logged_ms
    after = entry.prefix_hash or entry_hash(entry.payload)
    found.last_revision, found.prefix_hash = envelope.last_revision, after.hex()
    found.entries += 1
    return after
