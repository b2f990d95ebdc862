"""Renaming of a log: one transaction of the metadata store, so that a log never has two names, nor none.

The chain leaves the old name and stands under the new one; what other nodes say under the log's name goes with it: what
it uses of other logs' ledgers, an operator's word that nobody serves it. Where it was, its new name is told. All else
is bound to the log's id: ledgers and their passwords, seals, proofs, forks, snapshots, positions of readers.
"""

from __future__ import annotations

import contextlib

import msgspec

from ledger.errors import BadVersionError, MetadataUnavailableError, NodeExistsError, NoNodeError
from ledger.ports import MetadataStore, NodeChange
from rsm_spark.core.chain import DEFAULT_RSM_ROOT, LogChain, chain_path, decode_chain, service_path
from rsm_spark.errors import ChainConflictError, LogError, LogExistsError, NoSuchLogError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.deletion import delete_tree, ensure_node
from rsm_spark.log.discovery import Discovery
from rsm_spark.log.forgetting import forgotten_path
from rsm_spark.log.former_names import FormerName, former_name, former_name_path, present_name
from rsm_spark.log.partition_names import is_partitioned, whole_of
from rsm_spark.log.sharing import notes_of

_TRIES = 10


class RenamedLog(msgspec.Struct, frozen=True):
    """Outcome of a renaming.

    Attributes:
        log: Name that it had.
        new_name: Name that it has now.
        log_id: Its uuid, 32 hex digits.
        was_done: An earlier try had done it, whose reply was lost perhaps.

    """

    log: str
    new_name: str
    log_id: str
    was_done: bool


async def rename_log(
    store: MetadataStore, log: str, new_name: str, rsm_root: str = DEFAULT_RSM_ROOT, *, by: str, at_ms: int
) -> RenamedLog:
    """Give a log that nobody serves another name.

    Args:
        store: Session with the metadata store.
        log: Name of the log.
        new_name: Name that it is to have; no log may have it.
        rsm_root: Where logs live.
        by: Who renames it.
        at_ms: Wall clock.

    Raises:
        NoSuchLogError: There is no log of this name.
        LogError: A replica of it is alive; it is being made, or deleted; the new name is taken.
        ChainConflictError: Others changed it again and again; nothing was done.
        MetadataError: The metadata store cannot be asked. It is renamed, or it is not: the next call tells.

    """
    if not new_name or "/" in new_name or new_name in {".", "..", log}:
        raise LogError(f"log {log}: {new_name!r} is no other name for a log; it needs one without a slash")
    for _ in range(_TRIES):
        try:
            chain, version, value = await _read(store, log, rsm_root)
        except NoSuchLogError:
            log_id = await _renamed_before(store, log, new_name, rsm_root)
            if log_id is None:
                raise
            await _tidy(store, log, rsm_root)
            return RenamedLog(log, new_name, log_id, was_done=True)
        await _check(store, log, new_name, chain, rsm_root)
        changes = await _changes(store, log, new_name, chain, rsm_root)
        former = NodeChange(
            former_name_path(log, rsm_root),
            msgspec.json.encode(FormerName(chain.log_id, new_name, by, at_ms)),
            await store.exists(former_name_path(log, rsm_root)),
        )
        gone = NodeChange(chain_path(log, rsm_root), None, version)
        there = NodeChange(chain_path(new_name, rsm_root), value, None)
        # Its reply may be lost, or somebody else was faster: the next look tells.
        with contextlib.suppress(BadVersionError, NodeExistsError, NoNodeError, MetadataUnavailableError):
            await store.change([gone, there, former, *changes])
            await _tidy(store, log, rsm_root)
            return RenamedLog(log, new_name, chain.log_id, was_done=False)
    raise ChainConflictError(
        f"log {log}: it was not renamed, since somebody changed it meanwhile, {_TRIES} times: stop every replica and "
        "command that uses it, then try again"
    )


async def forget_former_name(store: MetadataStore, log: str, rsm_root: str = DEFAULT_RSM_ROOT) -> FormerName:
    """Have a name tell no more which log had it, so that a replica may begin another one.

    Raises:
        LogError: It tells of none.
        MetadataError: The metadata store cannot be asked.

    """
    found = await former_name(store, log, rsm_root)
    if found is None:
        raise LogError(f"log {log}: no log had this name before")
    with contextlib.suppress(NoNodeError):
        await store.delete(former_name_path(log, rsm_root))
    return found


async def _read(store: MetadataStore, log: str, rsm_root: str) -> tuple[LogChain, int, bytes]:
    value, version = await ChainStore(store, log, rsm_root).read_bytes()
    return decode_chain(value, log_name=log), version, value


async def _renamed_before(store: MetadataStore, log: str, new_name: str, rsm_root: str) -> str | None:
    found = await former_name(store, log, rsm_root)
    if found is None or found.new_name != new_name:
        return None
    is_there = await present_name(store, new_name, found.log_id, rsm_root) == new_name
    return found.log_id if is_there else None


async def _check(store: MetadataStore, log: str, new_name: str, chain: LogChain, rsm_root: str) -> None:
    if chain.unfinished:
        raise LogError(f"log {log}: {chain.unfinished} is making it: wait for that, or undo it: rsm log delete {log}")
    alive = [member.replica_id for member in await Discovery(store, log, rsm_root).members()]
    if alive:
        raise LogError(
            f"log {log}: its replica{'s' if len(alive) > 1 else ''} {', '.join(alive)} still "
            f"{'run' if len(alive) > 1 else 'runs'}: stop every replica first; it was not renamed"
        )
    whole = await whole_of(store, log, chain.log_id, rsm_root)
    if whole is not None:
        raise LogError(
            f"log {log}: it is a partition of log {whole}, whose name it has; a partitioned log keeps its name"
        )
    if (
        await is_partitioned(store, new_name, rsm_root)
        or await store.exists(chain_path(new_name, rsm_root)) is not None
    ):
        raise LogExistsError(f"log {new_name}: there is one already: choose another name; log {log} was not renamed")
    for place, reason in (
        ("deleting", f"a deletion of it was cut off: finish that with rsm log delete {log}"),
        ("making", "the restore that made it, or one that looks after restores, is not done: rsm backup create"),
    ):
        if await store.exists(f"{rsm_root}/{place}/{chain.log_id}") is not None:
            raise LogError(f"log {log}: it was not renamed: {reason}")


async def _changes(store: MetadataStore, log: str, new_name: str, chain: LogChain, rsm_root: str) -> list[NodeChange]:
    """Return what changes with the name, upon the condition that nobody deletes the log or takes it for unfinished."""
    changes = []
    for place in ("deleting", "making"):
        await ensure_node(store, f"{rsm_root}/{place}")
        absent = f"{rsm_root}/{place}/{chain.log_id}"
        changes += [NodeChange(absent, b"", None), NodeChange(absent)]
    await ensure_node(store, f"{rsm_root}/renamed")
    for path, (use, version) in (await notes_of(store, chain.log_id, f"{rsm_root}/sharing")).items():
        changes.append(NodeChange(path, msgspec.json.encode(msgspec.structs.replace(use, log=new_name)), version))
    if (version_then := await store.exists(former_name_path(new_name, rsm_root))) is not None:
        changes.append(NodeChange(former_name_path(new_name, rsm_root), None, version_then))
    with contextlib.suppress(NoNodeError):
        value = (await store.get(forgotten_path(log, rsm_root))).value
        await ensure_node(store, service_path(new_name, rsm_root))
        known = await store.exists(forgotten_path(new_name, rsm_root))
        changes.append(NodeChange(forgotten_path(new_name, rsm_root), value, known))
    return changes


async def _tidy(store: MetadataStore, log: str, rsm_root: str) -> None:
    """Delete what replicas have left under the old name, unless another log has it by now."""
    if await store.exists(chain_path(log, rsm_root)) is None:
        await delete_tree(store, service_path(log, rsm_root))
