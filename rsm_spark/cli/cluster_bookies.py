"""Bookies and cookies of a cluster, as `rsm cluster` tells them."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from ledger.client.pool import ConnectionPool
from ledger.client.settings import ClientSettings
from ledger.errors import BookieUnavailableError, CorruptMetadataError, NoNodeError
from ledger.replication.core.repair_plan import named_bookies
from ledger.replication.marks import MarkStore
from ledger.replication.metadata_reading import read_each
from ledger.replication.questions import disk_space
from ledger.wire import paths
from ledger.zookeeper.ledgers import LedgerStore
from ledger.zookeeper.registration import read_cookie


class ClusterBookie(msgspec.Struct, frozen=True, kw_only=True):
    """One bookie as `rsm cluster bookies` tells it.

    Attributes:
        bookie_id: Its id.
        state: "writable", "read-only", "draining" or "missing".
        total_bytes: Size of its ledger disks; None if it does not say.
        free_bytes: Free of it.
        ledger_count: Ledgers that name it.
        problem: Why it does not say how much room it has; "" if it does, or is missing.
        address: Where it is registered, host:port; None if it is missing.

    """

    bookie_id: str
    state: str
    total_bytes: int | None
    free_bytes: int | None
    ledger_count: int
    problem: str = ""
    address: str | None = None


async def look_at_bookies(ledgers: LedgerStore) -> list[ClusterBookie]:
    """Return every bookie that serves, has a cookie, or is named by a ledger; sorted."""
    await ledgers.store.sync(ledgers.root)
    states = dict.fromkeys(await ledgers.writable_bookies(), "writable")
    states.update(dict.fromkeys(await ledgers.read_only_bookies(), "read-only"))
    draining = await MarkStore(ledgers.store, ledgers.root, "").draining()
    states.update(dict.fromkeys([one for one in draining if one in states], "draining"))
    counts: dict[str, int] = {}
    async for _, metadata in read_each(ledgers, await ledgers.list()):
        for bookie_id in [] if metadata is None else named_bookies(metadata):
            counts[bookie_id] = counts.get(bookie_id, 0) + 1
    rng = random.Random()  # noqa: S311 - spreads load, guards nothing
    pool = ConnectionPool(ledgers.bookie_address, rng, ClientSettings.from_environment())
    try:
        rooms = await disk_space(pool, list(states))
    finally:
        await pool.close()
    found: list[ClusterBookie] = []
    for bookie_id in sorted({*states, *counts, *await _cookie_ids(ledgers)}):
        room = rooms.get(bookie_id, "")
        total_bytes, free_bytes = (None, None) if isinstance(room, str) else (room.total_bytes, room.free_bytes)
        found.append(
            ClusterBookie(
                bookie_id=bookie_id,
                state=states.get(bookie_id, "missing"),
                total_bytes=total_bytes,
                free_bytes=free_bytes,
                ledger_count=counts.get(bookie_id, 0),
                problem=room if isinstance(room, str) else "",
                address=await _address(ledgers, bookie_id) if bookie_id in states else None,
            )
        )
    return found


async def _address(ledgers: LedgerStore, bookie_id: str) -> str | None:
    try:
        return "{}:{}".format(*await ledgers.bookie_address(bookie_id))
    except (BookieUnavailableError, CorruptMetadataError):  # It has just left, or nobody can tell.
        return None


async def look_at_cookies(ledgers: LedgerStore) -> list[dict[str, Any]]:
    """Return every cookie, whether its bookie serves, and what is wrong with it; sorted by bookie."""
    serving = {*await ledgers.writable_bookies(), *await ledgers.read_only_bookies()}
    found: list[dict[str, Any]] = []
    for bookie_id in await _cookie_ids(ledgers):
        try:
            cookie = await read_cookie(ledgers.store, ledgers.root, bookie_id)
        except CorruptMetadataError as error:
            found.append({"bookie_id": bookie_id, "serves": bookie_id in serving, "problem": str(error)})
            continue
        if cookie is not None:
            facts = msgspec.to_builtins(cookie)
            found.append({**facts, "bookie_id": bookie_id, "serves": bookie_id in serving, "problem": ""})
    return found


async def _cookie_ids(ledgers: LedgerStore) -> list[str]:
    try:
        return sorted(await ledgers.store.children(paths.cookie_path(ledgers.root)))
    except NoNodeError:
        return []
