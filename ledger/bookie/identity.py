"""Which bookie these disks belong to: the cookie, in the metadata and in every directory, must be one (safety 25).

In the same spirit as BookKeeper: the text lies in `<directory>/current/VERSION`, where its tools look for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ledger.errors import CookieMismatchError, NoSuchLedgerError
from ledger.store.disk import Disk, read_file, write_atomically
from ledger.store.limbo import Limbo, id_ranges, save_limbo
from ledger.wire.metadata_format import Cookie, decode_cookie, encode_cookie
from ledger.zk.ledgers import LedgerStore
from ledger.zk.registration import create_cookie, had_cookie, read_cookie, remember_cookie

__all__ = ["claim_disks", "newest_ledger_id", "still_named_up_to"]

_FILE_NAME = "VERSION"


async def claim_disks(
    disk: Disk, ledgers: LedgerStore, cookie: Cookie, folders: Sequence[str], *, limbo_folder: str
) -> bool:
    """Check that the disks are this bookie's, or make them so if everything is new.

    New disks for an id that ledgers still name begin in limbo (safety 25); for an id that was only used before, they
    take no ordinary adds to the ledgers that exist. That is durable before the cookie is:
    a start that is cut short in between must not leave disks that look like those of a bookie that lost nothing.

    Args:
        disk: The disk.
        ledgers: The metadata.
        cookie: What this process is configured to be.
        folders: Every directory's `current` folder.
        limbo_folder: Where the store keeps its limbo state.

    Returns:
        Whether the bookie is new.

    Raises:
        CookieMismatchError: The disks, the address or the cluster are not those that belong together.

    """
    held = [_read(disk, folder) for folder in folders]
    registered = await read_cookie(ledgers.store, ledgers.root, cookie.bookie_id)
    for folder, found in zip(folders, held, strict=True):
        if found is not None and found != cookie:
            raise CookieMismatchError(
                f"{folder}: the disk belongs to {_describe(found)}, this process is {_describe(cookie)}; start it "
                "with the address, directories and cluster that the disk had, or with empty directories"
            )
    if registered is None:
        for folder in folders:
            if any(name.endswith((".j", ".seg")) for name in disk.list_dir(folder)):
                raise CookieMismatchError(
                    f"{folder}: holds entries, but the metadata know no bookie {cookie.bookie_id}: was the metadata "
                    "store wiped? Restore it, or move the directories away"
                )
        newest = await still_named_up_to(ledgers, cookie.bookie_id)
        if newest >= 0:
            reason = f"ledgers name {cookie.bookie_id}, but its disks are new: what it held is lost"
            save_limbo(disk, limbo_folder, Limbo(newest, (reason,)))
        elif await had_cookie(ledgers.store, ledgers.root, cookie.bookie_id):
            # Whoever had the id may have been told of fences: its ledgers have moved away, their old writers not.
            save_limbo(disk, limbo_folder, Limbo(fenced=id_ranges(await ledgers.list())))
        for folder in folders:
            write_atomically(disk, folder, _FILE_NAME, encode_cookie(cookie))
        await create_cookie(ledgers.store, ledgers.root, cookie.bookie_id, cookie)
        await remember_cookie(ledgers.store, ledgers.root, cookie.bookie_id)
        return True
    if registered != cookie:
        raise CookieMismatchError(
            f"bookie {cookie.bookie_id}: the metadata know it as {_describe(registered)}, this process is "
            f"{_describe(cookie)}; use the directories that it had"
        )
    missing = [folder for folder, found in zip(folders, held, strict=True) if found is None]
    if missing:
        raise CookieMismatchError(
            f"bookie {cookie.bookie_id}: {', '.join(missing)} is empty, but this bookie had data there: is the disk "
            "mounted? If it is lost, delete the bookie's cookie; it then starts empty and answers 'unknown'"
        )
    await remember_cookie(ledgers.store, ledgers.root, cookie.bookie_id)  # It may be older than this custom.
    return False


def _read(disk: Disk, folder: str) -> Cookie | None:
    disk.make_dirs(folder)
    path = f"{folder}/{_FILE_NAME}"
    return decode_cookie(bytes(read_file(disk, path))) if disk.exists(path) else None


def _describe(cookie: Cookie) -> str:
    dirs = ", ".join(cookie.ledger_dirs)
    return f"{cookie.bookie_id} (journal {cookie.journal_dirs}, ledgers {dirs}, cluster {cookie.instance_id})"


async def newest_ledger_id(ledgers: LedgerStore) -> int:
    """Return the highest id of all ledgers that exist by now, or -1."""
    await ledgers.store.sync(ledgers.root)
    return max(await ledgers.list(), default=-1)


async def still_named_up_to(ledgers: LedgerStore, bookie_id: str) -> int:
    """Return the newest ledger's id if any ledger names this bookie though its disks are new; else -1."""
    await ledgers.store.sync(ledgers.root)
    ledger_ids = await ledgers.list()
    for ledger_id in ledger_ids:
        try:
            metadata, _version = await ledgers.read(ledger_id)
        except NoSuchLedgerError:
            continue  # Deleted meanwhile.
        if any(bookie_id in segment.bookies for segment in metadata.segments):
            return max(ledger_ids)
    return -1
