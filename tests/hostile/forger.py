"""Adds to a log's ledger what no leader wrote, by the bookies' ports alone."""

from __future__ import annotations

import asyncio

from ledger.client.client import LedgerClient
from ledger.dev import DevCluster
from ledger.wire.codes import Status
from ledger.wire.digests import Digest, master_key
from ledger.wire.entry import seal
from ledger.wire.packets import AddRequest
from ledger.wire.v3 import decode_response, encode_request
from rsm_spark.core.envelope import SEAL_BYTES, Envelope, decode_envelope, encode_envelope, entry_hash
from rsm_spark.core.records import Record, encode_records
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.map.records import PUT

__all__ = ["Attacker", "forged_put"]


async def _add(bookie: str, request: AddRequest) -> Status:
    host, _, port = bookie.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(encode_request(request))
        length = int.from_bytes(await reader.readexactly(4), "big")
        return Status(decode_response(await reader.readexactly(length)).status)
    finally:
        writer.close()


class Attacker:
    """Knows everything that ZooKeeper and the bookies know; not the key."""

    def __init__(self, cluster: DevCluster, log: str) -> None:
        self.cluster = cluster
        self.log = log
        self.ledger_id = self.entry_id = -1

    async def add(self, make: object, *, password: bytes | None = None) -> list[Status]:
        """Put an entry behind the last one of the log, made of that; return what each bookie answers."""
        client = await LedgerClient.connect(self.cluster.metadata_uri)
        try:
            chain, _ = await ChainStore(client.store, self.log).read()
            self.ledger_id = chain.ledgers[-1].ledger_id
            metadata = await client.metadata(self.ledger_id)
            handle = await client.open_no_recovery(self.ledger_id, password=None)
            lac = await handle.read_lac()
            self.entry_id = max(lac.last_add_confirmed, lac.explicit_lac) + 1
            (last,) = await handle.read(self.entry_id - 1, self.entry_id - 1)
            # One more may be stored, although no LAC tells of it yet.
            payload = bytes(last.payload)
            await handle.close()
        finally:
            await client.close()
        body = make(payload) if callable(make) else make
        assert isinstance(body, bytes)
        digest = Digest(metadata.digest_type, metadata.password)
        packet = seal(self.ledger_id, self.entry_id, self.entry_id - 1, last.length + len(body), body, digest)
        key = master_key(metadata.password if password is None else password)
        request = AddRequest(0, self.ledger_id, self.entry_id, key, packet)
        return [await _add(bookie, request) for bookie in metadata.segments[-1].bookies]


def forged_put(last: bytes) -> bytes:
    """Return the payload that follows the last one in every respect and sets k1; sealed only if that was."""
    envelope = decode_envelope(last)
    records = encode_records([Record(PUT, None, (b"k1", b"HACKED"))])
    header = Envelope(
        envelope.log_id, envelope.leader_epoch, envelope.last_revision + 1, envelope.last_revision,
        envelope.logged_ms, 1, entry_hash(last), envelope.key_id,
    )  # fmt: skip
    return encode_envelope(header, records) + (last[-SEAL_BYTES:] if header.key_id else b"")
