"""Identity of a bookie's disks: the cookies in the metadata and in every directory must be equal (safety 25).

In the same spirit as BookKeeper: the text lies in `<directory>/current/VERSION`, where its tools look for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ledger.bookie.disk_age import DiskAge
from ledger.errors import CookieMismatchError, CorruptMetadataError, NoSuchLedgerError
from ledger.storage.disk import Disk, read_file, write_atomically
from ledger.storage.limbo import LEDGER_ID_MAX, Limbo, id_ranges, load_limbo, save_limbo
from ledger.wire.metadata_format import Cookie, decode_cookie, encode_cookie
from ledger.zookeeper.ledgers import LedgerStore
from ledger.zookeeper.registration import create_cookie, had_cookie, read_cookie, remember_cookie

_FILE_NAME = "VERSION"


def check_disks(disk: Disk, folders: Sequence[str], bookie_id: str) -> None:
    """Refuse disks of another bookie before anything is waited for.

    Raises:
        CookieMismatchError: They are; nothing was changed.

    """
    for folder in folders:
        found = _read(disk, folder)
        if found is not None and found.bookie_id != bookie_id:
            raise _foreign(folder, found, bookie_id)


async def claim_disks(
    disk: Disk, ledgers: LedgerStore, cookie: Cookie, folders: Sequence[str], age: DiskAge, *, limbo_folder: str
) -> bool:
    """Check that the disks are this bookie's, or make them so if everything is new.

    New disks for an id that ledgers still name begin in limbo (safety 25); for an id that was only used before, they
    take no ordinary adds to the ledgers that exist. Disks that come back after their cookie was deleted begin in limbo,
    too: they were given up, and may be an older copy. All that is durable before the cookie is:
    a start that is cut short in between must not leave disks that look like those of a bookie that lost nothing.

    Args:
        disk: The disk.
        ledgers: The metadata.
        cookie: What this process is configured to be.
        folders: Every directory's `current` folder.
        age: Of the disks: new ones begin with that of those before them.
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
            raise _foreign(folder, found, _describe(cookie))
    if registered is None:
        filled = [folder for folder in folders if _holds_entries(disk, folder)]
        if filled:
            await _check_return(ledgers, cookie, filled[0], is_whole=None not in held)
            reason = f"the cookie of {cookie.bookie_id} was deleted, and its disks are back: what they lack is unknown"
            limbo = load_limbo(disk, limbo_folder)
            if limbo.ledger_id_max != LEDGER_ID_MAX or reason not in limbo.reasons:  # Else of a start that was cut.
                save_limbo(disk, limbo_folder, limbo.with_losses([reason]))
            await create_cookie(ledgers.store, ledgers.root, cookie.bookie_id, cookie)
            return False
        newest = await still_named_up_to(ledgers, cookie.bookie_id)
        if newest >= 0:
            reason = f"ledgers name {cookie.bookie_id}, but its disks are new: what it held is lost"
            save_limbo(disk, limbo_folder, Limbo(newest, (reason,)))
        elif await had_cookie(ledgers.store, ledgers.root, cookie.bookie_id):
            # Whoever had the id may have been told of fences: its ledgers have moved away, their old writers not.
            save_limbo(disk, limbo_folder, Limbo(fenced=id_ranges(await ledgers.list())))
        await age.adopt(disk, limbo_folder)
        for folder in folders:
            write_atomically(disk, folder, _FILE_NAME, encode_cookie(cookie))
        await create_cookie(ledgers.store, ledgers.root, cookie.bookie_id, cookie)
        await remember_cookie(ledgers.store, ledgers.root, cookie.bookie_id)
        return True
    if registered != cookie:
        advice = "use the directories that it had"
        if cookie.bookie_id in [*await ledgers.writable_bookies(), *await ledgers.read_only_bookies()]:
            advice = "it serves there now: end it first, or give this one another --port or --bookie-id"
        raise CookieMismatchError(
            f"bookie {cookie.bookie_id}: the metadata know it as {_describe(registered)}, this process is "
            f"{_describe(cookie)}; {advice}"
        )
    missing = [folder for folder, found in zip(folders, held, strict=True) if found is None]
    if missing:
        raise CookieMismatchError(
            f"bookie {cookie.bookie_id}: {', '.join(missing)} is empty, but this bookie had data there: is the disk "
            "mounted? If it is lost, move this bookie's other directories away and delete its cookie; it then starts "
            "empty, answers 'unknown' and fetches from other bookies what it lost"
        )
    await remember_cookie(ledgers.store, ledgers.root, cookie.bookie_id)  # It may be older than this custom.
    return False


async def _check_return(ledgers: LedgerStore, cookie: Cookie, filled: str, *, is_whole: bool) -> None:
    """Check that disks with entries, whose cookie the metadata lack, once belonged to this cluster under this id."""
    if not await had_cookie(ledgers.store, ledgers.root, cookie.bookie_id):
        raise CookieMismatchError(
            f"{filled}: holds entries, but the metadata know no bookie {cookie.bookie_id}: was the metadata "
            "store wiped? Restore it, or move the directories away"
        )
    if not is_whole:
        raise CookieMismatchError(
            f"{filled}: holds entries, the cookie of {cookie.bookie_id} was deleted, and not every directory of it is "
            "here: give it all of them back, or move all of them away; it then starts empty and answers 'unknown'"
        )


def _holds_entries(disk: Disk, folder: str) -> bool:
    return any(name.endswith((".j", ".seg")) for name in disk.list_dir(folder))


def _read(disk: Disk, folder: str) -> Cookie | None:
    disk.make_dirs(folder)
    path = f"{folder}/{_FILE_NAME}"
    if not disk.exists(path):
        return None
    try:
        return decode_cookie(bytes(read_file(disk, path)))
    except CorruptMetadataError as error:
        raise CorruptMetadataError(
            f"{path}: {error}. Copy the file from another directory of this bookie: it is the same in all of them. If "
            "there is none, move the directories away and delete the cookie: the bookie then starts empty"
        ) from error


def _foreign(folder: str, found: Cookie, this: str) -> CookieMismatchError:
    return CookieMismatchError(
        f"{folder}: the disk belongs to {_describe(found)}, this process is {this}; start it with the id (--bookie-id "
        f"{found.bookie_id}), directories and cluster that the disk had, or with empty directories"
    )


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
