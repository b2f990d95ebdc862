"""Deletion of a log: its name first, then its ledgers, then what is left of its replicas.

A note with the chain takes the place of the log's name, at once, and stands under `<root>/deleting/<log id>` until its
last ledger is gone. So a deletion that is cut off anywhere is finished by the next one, and a log of the same name that
is made meanwhile is another log, which nothing of this touches. Ledgers that other logs use stay, and go with the last
of them. Those that no chain ever named go too: they say themselves of which log they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import msgspec

from ledger.client.client import LedgerClient
from ledger.decoding import json_decoder
from ledger.errors import BadVersionError, MetadataDeniedError, NodeExistsError, NoNodeError
from ledger.ports import MetadataStore, NodeChange
from rsm_spark.core.chain import DEFAULT_RSM_ROOT, LogChain, chain_path, service_path
from rsm_spark.errors import ChainConflictError, LogError, NoSuchLogError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.consumers import LogConsumers, consumers_path
from rsm_spark.log.detachment import detaching_path, noted_copies
from rsm_spark.log.discovery import Discovery
from rsm_spark.log.former_names import former_name_path
from rsm_spark.log.log_policy import policy_path
from rsm_spark.log.partition_names import refuse_partition
from rsm_spark.log.reader_lock import readers_path
from rsm_spark.log.remains import ledgers_of
from rsm_spark.log.sharing import LedgerUse, SharedLedgers, uses_of


class DeletedLog(msgspec.Struct, frozen=True):
    """Outcome of a deletion.

    Attributes:
        log: Name that it had.
        log_id: Its uuid, 32 hex digits.
        ledger_ids: Ledgers that were deleted now, ascending.
        was_begun: An earlier deletion had begun with it.
        kept: Ledgers that other logs use: they stay until the last of those goes.
        unread: Ledgers that this log-in may not look at: should one be of this log, and in no chain, it stays.
        unread_notes: Nodes that it may not look at: should one tell of a fork of this name that was cut off, or of an
            earlier deletion, that is left as it is.
        consumers: Names of those that were registered: they have nothing to read any more.

    """

    log: str
    log_id: str
    ledger_ids: list[int]
    was_begun: bool
    kept: list[int]
    unread: list[int] = msgspec.field(default_factory=list)
    unread_notes: list[str] = msgspec.field(default_factory=list)
    consumers: list[str] = msgspec.field(default_factory=list)


class _Note(msgspec.Struct, frozen=True):
    log: str
    log_id: str
    ledger_ids: list[int]


async def delete_log(
    client: LedgerClient,
    log: str,
    rsm_root: str = DEFAULT_RSM_ROOT,
    *,
    on_progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> list[DeletedLog]:
    """Delete a log, and finish what deletions of this name have left behind.

    Args:
        client: Connected ledger client.
        log: Name of the log.
        rsm_root: Where logs live.
        on_progress: Called after each ledger: how many are done, of how many.

    Returns:
        What was deleted: the log, behind what was left of deletions before.

    Raises:
        NoSuchLogError: There is no log of this name, nor a note of a deletion.
        LogError: A replica of it is alive; or it is a partition of a log that stays.
        ChainConflictError: The log was changed meanwhile; nothing was deleted.
        MetadataError: The metadata store cannot be asked. What was begun is finished by the next call.

    """
    store = client.store
    unread: list[str] = []
    noted = await _notes(store, log, rsm_root, unread)
    uses = await uses_of(store, log, rsm_root, unread)
    held: tuple[LogChain, int] | None = None
    missing: NoSuchLogError | None = None
    try:
        held = await ChainStore(store, log, rsm_root).read()
    except NoSuchLogError as error:
        missing = error
    else:
        await refuse_partition(store, log, held[0].log_id, rsm_root, what="deleted")
        await _refuse_alive(store, log, rsm_root)
    begun = {note.log_id: note for note in [*await _strays(store, log, rsm_root, uses), *noted]}
    if missing is not None and not begun:
        raise missing
    notes = [(note, True) for note in begun.values() if held is None or note.log_id != held[0].log_id]
    if held is not None:
        notes.append((await _unname(client, log, rsm_root, *held), False))
    done = []
    for note, was_begun in notes:
        one = await _finish(client, note, rsm_root, on_progress, was_begun=was_begun)
        done.append(msgspec.structs.replace(one, unread_notes=unread))
    return done


async def _notes(store: MetadataStore, log: str, rsm_root: str, unread: list[str]) -> list[_Note]:
    root = f"{rsm_root}/deleting"
    try:
        names = await store.children(root)
    except NoNodeError:
        return []
    found = []
    for name in names:
        try:
            with contextlib.suppress(NoNodeError):  # Another deletion has just finished it.
                note = json_decoder(_Note).decode((await store.get(f"{root}/{name}")).value)
                if note.log == log:
                    found.append(note)
        except MetadataDeniedError:
            unread.append(f"{root}/{name}")
    return found


async def _strays(store: MetadataStore, log: str, rsm_root: str, uses: dict[str, tuple[LedgerUse, int]]) -> list[_Note]:
    """Return what forks of this name have noted that came to nothing: their name was deleted just before.

    A fork takes its name before it notes anything. So what is noted of a name that another log has, or none, before and
    after the name was looked at, is of no log; nobody else's chain has to be read.

    Args:
        store: Session with the metadata store.
        log: The name.
        rsm_root: Where logs live.
        uses: What was noted before the name was looked at.

    """
    found: dict[str, _Note] = {}
    if uses:
        after = await uses_of(store, log, rsm_root, [])
        for use, _ in (one for path, one in uses.items() if after.get(path) == one):
            known = found.get(use.log_id, _Note(log, use.log_id, []))
            found[use.log_id] = _Note(log, use.log_id, [*known.ledger_ids, *use.ledger_ids, *use.leaving])
    return list(found.values())


async def _refuse_alive(store: MetadataStore, log: str, rsm_root: str) -> None:
    alive = [member.replica_id for member in await Discovery(store, log, rsm_root).members()]
    if alive:
        raise LogError(
            f"log {log}: its replica{'s' if len(alive) > 1 else ''} {', '.join(alive)} still "
            f"{'run' if len(alive) > 1 else 'runs'}: stop every replica first; nothing was deleted"
        )


async def _unname(client: LedgerClient, log: str, rsm_root: str, chain: LogChain, version: int) -> _Note:
    """Note what is to be deleted, then take the log's name away."""
    store = client.store
    used = await SharedLedgers(client, chain.log_id, rsm_root).used()  # A fork that was cut off has them in no chain.
    copies = await noted_copies(store, chain.log_id, rsm_root)
    ledger_ids = sorted({ledger.ledger_id for ledger in chain.ledgers} | {*chain.deleting, *used, *copies})
    note = _Note(log, chain.log_id, ledger_ids)
    path, value = f"{rsm_root}/deleting/{chain.log_id}", msgspec.json.encode(note)
    await ensure_node(store, f"{rsm_root}/deleting")
    noted = await store.exists(path)  # By a version that wrote the note alone, and was cut off.
    # Of a name that the log has taken over; of a fork that is being made, whose next write then fails.
    besides = [former_name_path(log, rsm_root), forking_path(chain.log_id, rsm_root)]
    going = [NodeChange(one) for one in besides if await store.exists(one) is not None]
    try:
        await store.change([
            NodeChange(path, value, noted),
            NodeChange(chain_path(log, rsm_root), None, version),
            *going,
        ])  # fmt: skip
    except (BadVersionError, NodeExistsError, NoNodeError) as error:
        raise ChainConflictError(
            f"log {log}: somebody has changed it meanwhile, perhaps a replica that has just started: nothing was "
            "deleted; stop every replica, then try again"
        ) from error
    return note


async def _finish(
    client: LedgerClient, note: _Note, rsm_root: str, on_progress: Callable[[int, int], None], *, was_begun: bool
) -> DeletedLog:
    # A leader that was killed may have created one, and written no chain that names it.
    unread: list[int] = []
    ledger_ids = sorted({*note.ledger_ids, *await ledgers_of(client, note.log_id, unread)})
    done = await SharedLedgers(client, note.log_id, rsm_root).delete(ledger_ids, on_progress)
    store = client.store
    consumers = [one.name for one in await LogConsumers(store, note.log_id, rsm_root).present()]
    if await store.exists(chain_path(note.log, rsm_root)) is None:  # Else they are of another log of this name.
        await delete_tree(store, service_path(note.log, rsm_root))
    await delete_tree(store, consumers_path(note.log_id, rsm_root))
    await delete_tree(store, detaching_path(note.log_id, rsm_root))
    await delete_tree(store, policy_path(note.log_id, rsm_root))
    await delete_tree(store, readers_path(note.log_id, rsm_root))
    await delete_tree(store, contents_path(note.log_id, rsm_root))
    with contextlib.suppress(NoNodeError):
        await store.delete(f"{rsm_root}/deleting/{note.log_id}")
    unread_ids = sorted({*unread} - {*ledger_ids})
    return DeletedLog(note.log, note.log_id, done.deleted, was_begun, done.kept, unread_ids, consumers=consumers)


def forking_path(log_id: str, rsm_root: str) -> str:
    """Return the node that stands while a fork is being made, and has its name."""
    return f"{rsm_root}/forking/{log_id}"


def contents_path(log_id: str, rsm_root: str) -> str:
    """Return the node that stands once a log has had ledgers with contents beside its entries."""
    return f"{rsm_root}/contents/{log_id}"


async def ensure_node(store: MetadataStore, path: str) -> None:
    """Create a node, unless it is there."""
    if await store.exists(path) is None:
        with contextlib.suppress(NodeExistsError):
            await store.create(path, parents=True)


async def delete_tree(store: MetadataStore, path: str) -> None:
    """Delete a node and all below it, as far as nobody adds to it meanwhile."""
    with contextlib.suppress(NoNodeError, NodeExistsError):
        for name in await store.children(path):
            await delete_tree(store, f"{path}/{name}")
        await store.delete(path)
