"""A cluster's placement rule in the metadata store: one node, the same for writers, recoveries and auto-recovery."""

from __future__ import annotations

import contextlib
import logging

import msgspec

from ledger.core.placement_rule import ClusterPlacement
from ledger.decoding import json_decoder
from ledger.errors import CorruptMetadataError, NodeExistsError, NoNodeError, UsageError
from ledger.ports import ANY_VERSION
from ledger.wire import paths
from ledger.zookeeper.ledgers import LedgerStore

_LOGGER = logging.getLogger(__name__)
_BYTES_MAX = 900_000


async def read_placement(ledgers: LedgerStore) -> ClusterPlacement | None:
    """Return the cluster's rule and places; None if there are none.

    Raises:
        CorruptMetadataError: The node is damaged.

    """
    path = paths.placement_path(ledgers.root)
    try:
        value = (await ledgers.store.get(path)).value
    except NoNodeError:
        return None
    try:
        placement = json_decoder(ClusterPlacement).decode(value)
        placement.check()
    except (msgspec.DecodeError, UsageError) as error:
        raise CorruptMetadataError(
            f"{path}: the placement rule of the cluster cannot be read: {error}. Write it anew: rsm cluster "
            "set-placement"
        ) from error
    return placement


async def placement_in_force(ledgers: LedgerStore) -> ClusterPlacement | None:
    """Return what `read_placement` does, but no rule instead of a damaged one: nobody stops writing because of that."""
    try:
        return await read_placement(ledgers)
    except CorruptMetadataError as error:
        _LOGGER.error("bookies are chosen without a rule: %s", error)
        return None


async def write_placement(ledgers: LedgerStore, placement: ClusterPlacement | None) -> None:
    """Set the cluster's rule and places, or remove them.

    Raises:
        UsageError: They cannot be meant, or are too long for a node.

    """
    path = paths.placement_path(ledgers.root)
    if placement is None:
        with contextlib.suppress(NoNodeError):
            await ledgers.store.delete(path)
        return
    placement.check()
    value = msgspec.json.encode(placement)
    if len(value) > _BYTES_MAX:
        raise UsageError(
            f"the places of {len(placement.bookies)} bookies take {len(value)} bytes, more than a node has"
        )
    try:
        await ledgers.store.set(path, value, ANY_VERSION)
    except NoNodeError:
        try:
            await ledgers.store.create(path, value, parents=True)
        except NodeExistsError:  # Somebody else was first a moment ago; the last one counts.
            await ledgers.store.set(path, value, ANY_VERSION)
