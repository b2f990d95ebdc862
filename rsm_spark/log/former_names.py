"""Names that logs had before: what stands where a log was, so that whoever knows the old name hears the new one.

    <root>/renamed/<former name>    which log it was, and its next name

It counts only while no log has that name: another one may be made under it, by a command that names it.
"""

from __future__ import annotations

import contextlib

import msgspec

from ledger.decoding import json_decoder
from ledger.errors import MetadataDeniedError, NoNodeError
from ledger.ports import MetadataStore
from rsm_spark.core.chain import chain_path, decode_chain
from rsm_spark.errors import CorruptLogError

_NAMES_MAX = 100
"""A log that was renamed more often is not followed."""


class FormerName(msgspec.Struct, frozen=True):
    """Name that a log had.

    Attributes:
        log_id: Its uuid, 32 hex digits.
        new_name: The name that it was given then.
        by: Who renamed it.
        at_ms: Wall clock then.

    """

    log_id: str
    new_name: str
    by: str
    at_ms: int


def former_name_path(log: str, rsm_root: str) -> str:
    """Return the node of a former name."""
    return f"{rsm_root}/renamed/{log}"


async def former_name(store: MetadataStore, log: str, rsm_root: str) -> FormerName | None:
    """Return which log had a name, None if none that has another one now.

    Raises:
        CorruptLogError: The node does not say.
        MetadataError: The metadata store cannot be asked.

    """
    path = former_name_path(log, rsm_root)
    try:
        return json_decoder(FormerName).decode((await store.get(path)).value)
    except NoNodeError:
        return None
    except msgspec.MsgspecError as error:
        raise CorruptLogError(f"{path}: it does not say which log had the name: {error}") from error


async def former_names(store: MetadataStore, log_id: str, rsm_root: str) -> list[str]:
    """Return the names that a log had and that no other log has got, ascending; those that cannot be read are left out.

    Raises:
        MetadataError: The metadata store cannot be asked.

    """
    root = former_name_path("", rsm_root).rstrip("/")
    await store.sync(root)
    found = []
    with contextlib.suppress(NoNodeError):
        for name in await store.children(root):
            with contextlib.suppress(CorruptLogError, MetadataDeniedError):
                former = await former_name(store, name, rsm_root)
                if former is not None and former.log_id == log_id:
                    found.append(name)
    return sorted(found)


async def present_name(store: MetadataStore, log: str, log_id: str, rsm_root: str) -> str | None:
    """Return the name that a log has now, None if it is gone.

    Args:
        store: Session with the metadata store.
        log: A name that it had.
        log_id: Its uuid, 32 hex digits.
        rsm_root: Where logs live.

    Raises:
        CorruptLogError: A node does not say what it must.
        MetadataError: The metadata store cannot be asked.

    """
    for _ in range(_NAMES_MAX):
        path = chain_path(log, rsm_root)
        await store.sync(path)
        try:
            if decode_chain((await store.get(path)).value, log_name=log).log_id == log_id:
                return log
        except NoNodeError:
            pass
        found = await former_name(store, log, rsm_root)
        if found is None or found.log_id != log_id:
            return None
        log = found.new_name
    return None
