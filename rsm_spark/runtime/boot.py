"""Boot of a replica: its first state is a local snapshot, a peer's, the lake's, or the whole log from its beginning.

A durable machine (`rsm_spark.core.durable`) is asked first what it has kept: if the log goes on from there, that is it.
A snapshot is of use when the log still holds the entry after it. The first source that has one is taken, its newest
first; what turns out damaged is passed over and stays where it is. Peers that are dead or silent cost seconds, never
the boot. Nothing but a state whose rows come to the digest of its manifest is ever adopted; from elsewhere, in a log
with a key, only one that the log itself vouches for (`rsm_spark.runtime.snapshot_proof`).
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from ledger.errors import MetadataUnavailableError
from rsm_spark.core.chain import LogChain
from rsm_spark.core.durable import DurableMachine, StateMark
from rsm_spark.core.position import LogPosition
from rsm_spark.core.state import ReplicatedState, StateTip
from rsm_spark.errors import (
    ConnectionLostError,
    CorruptSnapshotError,
    ForkedLogError,
    MissingLogError,
    NoSuchLogError,
    RenamedLogError,
    SnapshotError,
)
from rsm_spark.runtime.admission import admit
from rsm_spark.runtime.context import ReplicaContext
from rsm_spark.runtime.peers import Peers, PeerSnapshots
from rsm_spark.runtime.snapshot_proof import unproven
from rsm_spark.snapshots.manifest import SnapshotManifest, SnapshotStore

_LOGGER = logging.getLogger(__name__)
_PATIENCE_S = 30.0


async def first_boot(context: ReplicaContext) -> int:
    """Boot a process that has just come: as `boot`, but a metadata store that blinks is waited for, up to 30 s."""
    loop = asyncio.get_running_loop()
    due_s = loop.time() + _PATIENCE_S
    while True:
        try:
            return await boot(context)
        except MetadataUnavailableError as error:
            if loop.time() >= due_s:
                raise
            _LOGGER.warning("booting again: %s", error, extra=context.log_extra)
        await asyncio.sleep(context.settings.retry_s)


async def boot(context: ReplicaContext) -> int:
    """Load the newest state from which the log can be continued into the context.

    Returns:
        Revision of the snapshot used; 0 if the log is read from its beginning, or from where the machine stands.

    Raises:
        ForkedLogError: The local snapshots are of another log than the one that has this name now.
        NoSuchLogError: There are snapshots on the disk or in the lake, but the log is gone.
        SnapshotError: There is no log of this name yet, and the lake does not say whether there was one.
        MissingLogError: There is no such state, and the log does not begin with its first ledger any more; it names
            the revisions that are missing.
        AdmissionError: This process knows too little for this log, or has another ledger password.
        MetadataError: The metadata store cannot be asked.

    """
    machine = context.machine
    mark = await context.run_blocking(machine.resume) if isinstance(machine, DurableMachine) else None
    chain = await _chain(context, mark)
    await admit(context, chain)
    context.log_id = chain.log_id
    search = _Search(context, chain)
    if mark is not None and search.resume(mark):
        return 0
    manifest = await search.find()
    if manifest is not None:
        return manifest.revision
    search.begin_empty()
    return 0


async def _chain(context: ReplicaContext, mark: StateMark | None) -> LogChain:
    """Return the chain; create the log if nothing says that there was one before."""
    local: list[SnapshotManifest] = await context.run_blocking(context.snapshots.manifests)
    here = [*(manifest.log_id for manifest in local), *([] if mark is None else [mark.log_id])]
    if not here:
        if context.lake is not None:
            await _check_lake(context, context.lake)
        return await context.chains.ensure(context.rng.randbytes(16).hex())
    chain, _ = await context.chains.read()
    if chain.log_id not in here:
        raise ForkedLogError(
            f"log {context.log}: the local snapshots are of log {here[0]}, the metadata store has log "
            f"{chain.log_id} under this name: its data were lost or replaced. Check the metadata URI; to serve the "
            "present log start with an empty data directory"
        )
    return chain


async def _check_lake(context: ReplicaContext, lake: SnapshotStore) -> None:
    """Make sure that a log which is about to be created is not one whose chain was lost: its lake would know of it."""
    if await _has_chain(context):
        return
    manifests: list[SnapshotManifest] = await context.run_blocking(lake.manifests)
    # Asked again: another replica may have begun the log meanwhile, and these snapshots are of that.
    if manifests and not await _has_chain(context):
        newest = manifests[0]
        raise NoSuchLogError(
            f"log {context.log}: the metadata store has no log of this name, but the lake has {len(manifests)} "
            f"snapshots of it, the newest of revision {newest.revision} of log {newest.log_id}: an empty log would "
            "take their place. Check the metadata URI and the root; if the metadata store has lost its data, bring "
            "them back (rsm backup restore), or begin a log with the lake (rsm snapshot restore). To begin an empty "
            "log under this name, name another lake"
        )


async def _has_chain(context: ReplicaContext) -> bool:
    try:
        await context.chains.read()
    except RenamedLogError:
        raise
    except NoSuchLogError:
        return False
    return True


class _Search:
    """One search for a state, and what it came across: the operator is told all of it if it fails."""

    def __init__(self, context: ReplicaContext, chain: LogChain) -> None:
        self._context = context
        self._chain = chain
        self._seen: list[str] = []  # One line a place.
        self._newest = 0  # Highest revision of a whole snapshot of this log, continued or not.

    async def find(self) -> SnapshotManifest | None:
        """Adopt the best state there is; None if there is none."""
        context = self._context
        found = await self._from_store("local", context.snapshots)
        if found is not None or not self._chain.ledgers:
            return found
        if context.peers is None:
            self._seen.append("peers: not asked")
        else:
            found = await self._from_peers(context.peers)
        if found is not None:
            return found
        if context.lake is None:
            self._seen.append("lake: none is named")
            return None
        return await self._from_store("lake", context.lake)

    def resume(self, mark: StateMark) -> bool:
        """Adopt what the machine has kept; False if the log does not go on from there."""
        context = self._context
        at = f"the machine's own state of revision {mark.revision}"
        if mark.log_id != self._chain.log_id:
            self._say(f"{at} is of no use: it is of log {mark.log_id}, this is log {self._chain.log_id}")
            return False
        self._newest = max(self._newest, mark.revision)
        if mark.entry_id >= 0 and mark.ledger_id not in [one.ledger_id for one in self._chain.ledgers]:
            self._say(f"{at} is of no use: its ledger {mark.ledger_id} has left the log")
            return False
        if mark.entry_id < 0 and not self._chain.is_whole:
            self._say(f"{at} is of no use: the beginning of the log has left it")
            return False
        state = ReplicatedState(context.machine, *self._chain.ancestry)
        try:
            state.resume(mark)
        except SnapshotError as error:
            self._say(f"{at} is of no use: {error}")
            return False
        context.adopt(state, mark.position)
        return True

    def _say(self, text: str) -> None:
        """Note what was found at a place, for the log and for the error if nothing else is found."""
        self._seen.append(text)
        _LOGGER.warning("%s", text, extra=self._context.log_extra)

    async def _from_store(self, name: str, store: SnapshotStore) -> SnapshotManifest | None:
        try:
            manifests: list[SnapshotManifest] = await self._context.run_blocking(store.manifests)
        except SnapshotError as error:
            _LOGGER.warning("%s snapshots cannot be listed: %s", name, error, extra=self._context.log_extra)
            self._seen.append(f"{name}: {error}")
            return None
        if not manifests:
            self._seen.append(f"{name}: no snapshots")
        for manifest in manifests:
            if not self._continues(manifest, name):
                continue
            if store is not self._context.snapshots and not await self._is_proven(manifest, name):
                continue
            if await self._adopt(manifest, store, name):
                return manifest
        return None

    async def _from_peers(self, peers: Peers) -> SnapshotManifest | None:
        """Copy the newest snapshot that any replica has; one that fails is left out from then on."""
        context = self._context
        me = context.me.replica_id
        members = [one.replica_id for one in await context.discovery.members() if one.replica_id != me and one.address]
        if not members:
            self._seen.append("peers: no other replica runs")
        listed = await asyncio.gather(*(self._list(peers, name) for name in members))
        offers = [(manifest, one.replica_id) for one in listed if one is not None for manifest in one.manifests]
        offers.sort(key=lambda offer: (-offer[0].revision, offer[1]))
        lost: set[str] = set()
        for manifest, name in offers:
            if name in lost or not self._continues(manifest, f"replica {name}"):
                continue
            if not await self._is_proven(manifest, f"replica {name}"):
                continue
            try:
                copied = await peers.download(name, manifest, read_back=False)
            except (ConnectionLostError, SnapshotError) as error:
                _LOGGER.warning("snapshot of replica %s not copied: %s", name, error, extra=context.log_extra)
                self._seen.append(f"replica {name}: {error}")
                if isinstance(error, ConnectionLostError):
                    lost.add(name)
                continue
            if await self._adopt(copied, context.snapshots, f"replica {name}"):
                return copied
        return None

    async def _list(self, peers: Peers, name: str) -> PeerSnapshots | None:
        try:
            found = await peers.list(name)
        except ConnectionLostError as error:
            _LOGGER.warning("replica %s does not list its snapshots: %s", name, error, extra=self._context.log_extra)
            self._seen.append(f"replica {name}: {error}")
            return None
        if not found.manifests:
            self._seen.append(f"replica {name}: no snapshots")
        return found

    def _continues(self, manifest: SnapshotManifest, name: str) -> bool:
        """Return whether the log still holds what comes after this snapshot."""
        reason = ""
        if manifest.log_id != self._chain.log_id:
            reason = f"it is of log {manifest.log_id}, this is log {self._chain.log_id}"
        else:
            self._newest = max(self._newest, manifest.revision)
            if manifest.contradiction:
                reason = "it is evidence, no snapshot"
            elif manifest.entry_id >= 0 and not self._chain.has(manifest.ledger_id):
                reason = f"its ledger {manifest.ledger_id} has left the log"
        if reason:
            self._pass_over(manifest, name, reason)
        return not reason

    async def _is_proven(self, manifest: SnapshotManifest, name: str) -> bool:
        reason = await unproven(self._context, self._chain, manifest)
        if reason:
            self._pass_over(manifest, name, reason)
        return not reason

    def _pass_over(self, manifest: SnapshotManifest, name: str, reason: str) -> None:
        self._say(f"{name}: snapshot of revision {manifest.revision} is of no use: {reason}")

    async def _adopt(self, manifest: SnapshotManifest, store: SnapshotStore, name: str) -> bool:
        """Take the snapshot's state; False if its files are not what its manifest says."""
        context = self._context
        state = ReplicatedState(context.machine, *self._chain.ancestry)
        try:
            await context.run_blocking(lambda: _load(state, store, manifest))
        except SnapshotError as error:
            self._pass_over(manifest, name, str(error))
            return False
        position = LogPosition(manifest.ledger_id, manifest.entry_id) if manifest.entry_id >= 0 else None
        context.adopt(state, position)
        _LOGGER.info("booted from a snapshot: %s", name, extra=context.log_extra)
        return True

    def begin_empty(self) -> None:
        """Begin with the first entry of the log.

        Raises:
            MissingLogError: It has left the log.

        """
        context, chain = self._context, self._chain
        ledgers = chain.ledgers
        if not chain.is_whole:
            first = self._newest + 1
            last = ledgers[0].first_revision - 1 if ledgers else None
            if last is not None and first > last:
                first = 1  # The newest ones reach the log, but are damaged.
            raise MissingLogError(
                f"log {context.log}: revisions {first} to {last} are missing: they have left the log, and no usable "
                f"snapshot reaches them. Looked at: {'; '.join(self._seen)}. What would help: start a replica whose "
                f"disk has a snapshot of revision {last} or later, copy such a snapshot into the data directory, or "
                "name the lake that holds one",
                first_revision=first,
                last_revision=last,
            )
        context.machine.restore(())
        context.adopt(ReplicatedState(context.machine, *chain.ancestry), None)


def _load(state: ReplicatedState, store: SnapshotStore, manifest: SnapshotManifest) -> None:
    tip = StateTip(
        manifest.revision,
        bytes.fromhex(manifest.prefix_hash),
        manifest.leader_epoch,
        manifest.logged_ms,
        manifest.sealed,
    )
    with _collector_at_rest():
        state.restore(store.read(manifest, is_summed=False), tip, manifest.machine)
    found = (f"{state.digest:032x}", state.row_count)
    if found != (manifest.digest, manifest.row_count):
        store.condemn(manifest, f"has rows with the digest {found[0]}, {found[1]} rows: its manifest says otherwise")
        raise CorruptSnapshotError(
            f"snapshot of revision {manifest.revision}: its rows come to digest {found[0]}, {found[1]} rows; its "
            f"manifest says {manifest.digest}, {manifest.row_count} rows"
        )


@contextmanager
def _collector_at_rest() -> Iterator[None]:
    """Let the garbage collector rest while a million objects are made, all of which stay."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
