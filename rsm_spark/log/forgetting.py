"""Word of an operator that nobody is to serve a log any more: what looks after logs does not call it bad from then on.

It lies under `<root>/services/<log>/forgotten`, and holds for one log id and one epoch: the next leader of the log
takes it back by that, and a deletion of the log takes it along.
"""

from __future__ import annotations

import msgspec

from ledger.decoding import json_decoder
from ledger.errors import BadVersionError, NodeExistsError, NoNodeError
from ledger.ports import MetadataStore
from rsm_spark.core.chain import DEFAULT_RSM_ROOT, LogChain, service_path
from rsm_spark.errors import LogError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.discovery import Discovery


class ForgottenLog(msgspec.Struct, frozen=True):
    """Log that is served no more.

    Attributes:
        log_id: Its uuid, 32 hex digits.
        leader_epoch: Of its chain when that was said.
        by: Who said so.
        at_ms: Wall clock then.

    """

    log_id: str
    leader_epoch: int
    by: str
    at_ms: int


async def forget_log(
    store: MetadataStore, log: str, rsm_root: str = DEFAULT_RSM_ROOT, *, by: str, at_ms: int
) -> ForgottenLog:
    """Note that nobody is to serve a log any more.

    Raises:
        NoSuchLogError: There is no log of this name.
        LogError: A replica of it is alive.
        MetadataError: The metadata store cannot be asked.

    """
    chain, _ = await ChainStore(store, log, rsm_root).read()
    alive = [member.replica_id for member in await Discovery(store, log, rsm_root).members()]
    if alive:
        raise LogError(f"log {log}: {', '.join(alive)} of its replicas run: it is served, stop them first")
    path, noted = forgotten_path(log, rsm_root), ForgottenLog(chain.log_id, chain.leader_epoch, by, at_ms)
    value = msgspec.json.encode(noted)
    while True:
        try:
            await store.create(path, value, parents=True)
        except NodeExistsError:
            try:
                await store.set(path, value, (await store.get(path)).version)
            except (BadVersionError, NoNodeError):
                continue  # Somebody else has just said so, or deleted the log.
        return noted


async def forgotten_log(
    store: MetadataStore, log: str, chain: LogChain, rsm_root: str = DEFAULT_RSM_ROOT
) -> ForgottenLog | None:
    """Return what an operator said of a log, None if nobody did or the log has been led since.

    Raises:
        MetadataError: The metadata store cannot be asked.

    """
    try:
        found = json_decoder(ForgottenLog).decode((await store.get(forgotten_path(log, rsm_root))).value)
    except (NoNodeError, msgspec.MsgspecError):
        return None
    return found if (found.log_id, found.leader_epoch) == (chain.log_id, chain.leader_epoch) else None


def forgotten_path(log: str, rsm_root: str) -> str:
    """Return the node of what was said of a log."""
    return f"{service_path(log, rsm_root)}/forgotten"
