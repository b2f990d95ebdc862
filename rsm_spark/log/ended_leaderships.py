"""Ends of leaderships as their leaders note them: the newest few of a log, under `<root>/services/<log>/ended`.

It is told after the place in the election has been given away, so that no take-over waits for it, and at best: a
leader that cannot reach the metadata store tells nothing. A deletion of the log takes it along.
"""

from __future__ import annotations

import msgspec

from ledger.decoding import json_decoder
from ledger.errors import BadVersionError, NodeExistsError, NoNodeError
from ledger.ports import MetadataStore
from rsm_spark.core.chain import DEFAULT_RSM_ROOT, service_path
from rsm_spark.core.leadership_ends import EndedLeadership

ENDS_MAX = 64
"""Ends that are kept for each log, the newest."""


async def note_end(store: MetadataStore, log: str, ended: EndedLeadership, rsm_root: str = DEFAULT_RSM_ROOT) -> None:
    """Note how a leadership has ended; of one epoch the first word counts.

    Raises:
        MetadataError: The metadata store cannot be asked.

    """
    path = _path(log, rsm_root)
    while True:
        try:
            found = await store.get(path)
        except NoNodeError:
            try:
                await store.create(path, msgspec.json.encode([ended]))
            except NodeExistsError:
                continue
            except NoNodeError:
                pass  # The log has been deleted: nothing of it is to come again.
            return
        known = {one.epoch: one for one in _decoded(found.value)}
        known.setdefault(ended.epoch, ended)
        kept = sorted(known.values(), key=lambda one: one.epoch)[-ENDS_MAX:]
        try:
            await store.set(path, msgspec.json.encode(kept), found.version)
        except (BadVersionError, NoNodeError):
            continue  # Another one has just told, or the log is being deleted.
        return


async def noted_ends(store: MetadataStore, log: str, rsm_root: str = DEFAULT_RSM_ROOT) -> dict[int, EndedLeadership]:
    """Return what leaders have told of their ends, by epoch.

    Raises:
        MetadataError: The metadata store cannot be asked.

    """
    try:
        found = await store.get(_path(log, rsm_root))
    except NoNodeError:
        return {}
    return {one.epoch: one for one in _decoded(found.value)}


def _decoded(value: bytes) -> list[EndedLeadership]:
    try:
        return json_decoder(list[EndedLeadership]).decode(value)
    except msgspec.MsgspecError:
        return []  # Of a later version: nothing of it is known here.


def _path(log: str, rsm_root: str) -> str:
    return f"{service_path(log, rsm_root)}/ended"
