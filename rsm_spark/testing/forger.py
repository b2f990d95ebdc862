"""A forger and a foreign fencer beside replicas on the twin of the ledger, and the operator who cleans up after them.

The forger knows all that bookies and ZooKeeper know. He strikes when the leader has just died: an entry behind the last
one, on every bookie. The fencer tries to recover the open ledger without the key. The operator sets aside what a
replica names as it stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from collections import Counter
from hashlib import sha256
from typing import Any

from ledger.errors import LedgerError, WrongPasswordError
from rsm_spark.core.chain import QuarantinedEntry, chain_path, decode_chain
from rsm_spark.core.envelope import SEAL_BYTES, Envelope, decode_envelope, encode_envelope, entry_hash
from rsm_spark.core.records import KernelRecord, Record, encode_records
from rsm_spark.core.seal import KeyRing, LogKey, key_id_of
from rsm_spark.errors import ChainConflictError, CorruptLogError, ForkedLogError, LogError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.quarantine import quarantine_entry
from rsm_spark.testing.cluster import LOG, ReplicaCluster
from rsm_spark.testing.ledger_twin import TwinClient
from rsm_spark.testing.ledger_world import LedgerTwin, LedgerWorld, TwinEntry

_PLACE = re.compile(r"ledger (\d+) entry (\d+): ")
_RETRY_S = 0.5


def simulated_keys() -> KeyRing:
    """Return keys that every run of a seed has again; the signatures are none."""
    secret = sha256(b"simulated log").digest()
    return KeyRing(
        [LogKey(key_id_of(secret), secret, lambda message: sha256(secret + message).digest() * 2, bytes(32))]
    )


class Forger:
    """Forges, fences, and sets aside.

    Args:
        cluster: The replicas; their settings have the keys.
        world: What they write to.
        client: Of forger, fencer and operator; they share it, not the key.
        rng: Decides when and what.

    Attributes:
        counts: What was done, by name.
        forged: Ledger and entry of each forged entry.
        is_excused: Whether a replica that stopped for this reason stopped rightly.

    """

    def __init__(self, cluster: ReplicaCluster, world: LedgerWorld, client: TwinClient, rng: random.Random) -> None:
        self.counts: Counter[str] = Counter()
        self.forged: set[tuple[int, int]] = set()
        self._cluster = cluster
        self._world = world
        self._client: Any = client  # As a `LedgerClient`.
        self._rng = rng
        self._cleaning: set[asyncio.Task[None]] = set()
        cluster.listeners.append(self._on_replica)

    def is_excused(self, reason: object) -> bool:
        """Return whether a replica stopped for an entry that is foreign indeed."""
        found = _PLACE.search(str(reason)) if isinstance(reason, CorruptLogError | ForkedLogError) else None
        return found is not None and (int(found[1]), int(found[2])) in self.forged

    async def run(self, duration_s: float) -> None:
        """Strike for so long."""
        loop = asyncio.get_running_loop()
        end = loop.time() + duration_s
        while loop.time() < end:
            await asyncio.sleep(self._rng.expovariate(1 / 4.0))
            with contextlib.suppress(LedgerError):  # Metadata store or bookies are away for him too.
                await self._fence()
                await self._forge()

    async def _fence(self) -> None:
        """Try to recover a ledger with the password that everybody knew."""
        open_ones = [twin.ledger_id for twin in self._world.ledgers.values() if not twin.is_closed]
        if not open_ones:
            return
        try:
            await self._client.open(self._rng.choice(open_ones), password=b"")
        except WrongPasswordError:
            self.counts["fences refused"] += 1
        except LedgerError:
            return
        else:
            self._cluster.ghosts.fail("single-writer", "a stranger has fenced a ledger of a log with a key")

    async def _forge(self) -> None:
        """Kill the leader and put an entry behind its last one."""
        name = self._cluster.leader
        if name is None:
            return
        path = chain_path(LOG)
        chain = decode_chain((await self._client.store.get(path)).value, log_name=LOG)
        twin = self._world.ledgers.get(chain.ledgers[-1].ledger_id)
        is_his = chain.leader is not None and chain.leader.replica_id == name == self._cluster.leader
        if twin is None or not twin.entries or not is_his:
            return
        self._cluster.simulation.hosts[name].kill()
        if twin.is_closed or twin.is_fenced or twin.metadata.state.name != "OPEN":
            return
        payload = self._payload(twin)
        entry_id = len(twin.entries)
        before = twin.entries[-1]
        twin.entries.append(TwinEntry(entry_id, entry_id - 1, before.length + len(payload), payload))
        twin.stored = twin.kept = entry_id + 1
        self._world.tell("store", twin.ledger_id, twin.stored)
        self.forged.add((twin.ledger_id, entry_id))
        if payload != before.payload:
            self._cluster.ghosts.foreign.add(entry_hash(payload))
        self.counts["forged"] += 1

    def _payload(self, twin: LedgerTwin) -> bytes:
        """Return an entry as good as can be made without the key."""
        last = twin.entries[-1].payload
        kind = self._rng.randrange(4)
        if kind == 0:
            return self._rng.randbytes(80)
        if kind == 1:
            return last
        envelope = decode_envelope(last)
        forged = Envelope(
            envelope.log_id, envelope.leader_epoch, envelope.last_revision + 1, envelope.last_revision,
            envelope.logged_ms, 1, entry_hash(last), b"" if kind == 2 else envelope.key_id,
        )  # fmt: skip
        records = encode_records([Record(KernelRecord.SESSION_OPENED, None, (self._rng.randbytes(16),))])
        return encode_envelope(forged, records) + (last[-SEAL_BYTES:] if forged.key_id else b"")

    # ---- the operator

    def _on_replica(self, name: str, _who: str, what: Any) -> None:
        if name == "exit" and self.is_excused(what):
            found = _PLACE.search(str(what))
            assert found is not None
            task = asyncio.get_running_loop().create_task(self._set_aside(int(found[1]), int(found[2])))
            self._cleaning.add(task)
            task.add_done_callback(self._cleaning.discard)

    async def _set_aside(self, ledger_id: int, entry_id: int) -> None:
        chains = ChainStore(self._client.store, LOG)
        wanted = QuarantinedEntry(ledger_id, entry_id, "", 0, 0, "operator", "named by a replica")
        keys = self._cluster.settings.log_keys
        while True:
            try:
                incarnation = self._rng.randbytes(16).hex()
                _, wrong = await quarantine_entry(
                    self._client, chains, wanted, incarnation=incarnation, keep=lambda _payload: None, keys=keys
                )
            except (LedgerError, ChainConflictError):
                await asyncio.sleep(_RETRY_S)
            except LogError:
                # An attempt before was answered too late, and the ledger has been trimmed since.
                chain, _ = await chains.read()
                if any(one.ledger_id == ledger_id for one in chain.ledgers):
                    raise
                return
            else:
                self.counts["set aside"] += bool(wrong)
                return
