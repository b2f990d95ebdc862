"""The id and the address of a bookie belong to one process at a time, also if the id does not say the address.

An id that is an address is safe by itself: who listens there has it. A bookie with a name of its own may be started
anywhere, and its address may pass to another bookie. Nothing in BookKeeper's protocol says which bookie answers, so two
rules keep clients from taking the one for the other:

* A bookie with a name serves only when no other process is registered under it. The node of a process that was killed
  goes at once if it held the same directories (their lock is here now), else with its session.
* No bookie listens at an address while another id is registered there, or where the address is another bookie's id.

A client looks at the registration again once its connection stands (`ledger.client.connection`): if it still says the
same address then, nobody else had begun to listen there when the connection was taken. Else a stranger's true "no such
entry" would count as this bookie's, and a recovery might cut off what was acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from typing import Final

from ledger.errors import CookieMismatchError, CorruptMetadataError, NoNodeError, UsageError
from ledger.wire import paths
from ledger.wire.metadata_format import decode_bookie_holder, decode_bookie_service_info
from ledger.zookeeper.ledgers import LedgerStore
from ledger.zookeeper.registration import read_cookie

_LOGGER = logging.getLogger(__name__)
_OWN_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,199}")
_RESERVED: Final = "readonly"
_LOOK_S: Final = 1.0
WAIT_S_MAX: Final = 30.0
"""Longest wait for the registration of another process, which may have ended."""


def check_own_id(own_id: str) -> None:
    """Refuse a name that BookKeeper does not take for a bookie.

    Raises:
        UsageError: It is none.

    """
    if not _OWN_ID.fullmatch(own_id) or own_id.lower() == _RESERVED:
        raise UsageError(
            f"--bookie-id {own_id[:80]!r}: need 1 to 200 letters, digits and . _ : - that begin with a letter or a "
            f'digit, and not "{_RESERVED}"'
        )


async def take_own_id(ledgers: LedgerStore, own_id: str, holder: str, *, wait_s: float = WAIT_S_MAX) -> None:
    """Wait until no other process is registered under a name; remove what one that held these disks has left.

    Must come before anything else that this process does as the bookie: a copy of the disks of one that serves has the
    same cookie, and would raise the age of the disks.

    Args:
        ledgers: The metadata.
        own_id: The name.
        holder: Mark of the directories whose locks this process holds.
        wait_s: How long to wait for a process that may have ended.

    Raises:
        CookieMismatchError: Another process serves under the name.

    """
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + wait_s
    await ledgers.store.sync(ledgers.root)
    for path in (paths.available_path(ledgers.root, own_id), paths.read_only_path(ledgers.root, own_id)):
        while True:
            gone = asyncio.Event()
            try:
                found = await ledgers.store.get(path, watch=gone.set)
            except NoNodeError:
                break
            if decode_bookie_holder(found.value) == holder:
                with contextlib.suppress(NoNodeError):
                    await ledgers.store.delete(path)
                break
            if loop.time() >= give_up_at:
                where = _words(decode_bookie_service_info(found.value))
                raise CookieMismatchError(
                    f"bookie {own_id}: a process at {where} has been registered under this id for {wait_s:.0f} s more: "
                    "it serves. Stop that one, or give this one another --bookie-id and directories of its own"
                )
            _LOGGER.info("waiting for a former registration of %s to vanish", own_id)
            await _pause(gone, give_up_at - loop.time())


async def check_address(ledgers: LedgerStore, bookie_id: str, address: tuple[str, int]) -> None:
    """Refuse an address that is the id of another bookie.

    Raises:
        CookieMismatchError: It is: clients would take this bookie for that one.

    """
    other = "{}:{}".format(*address)
    if other != bookie_id and await read_cookie(ledgers.store, ledgers.root, other) is not None:
        raise CookieMismatchError(
            f"bookie {bookie_id}: its address {other} is the id of another bookie: clients would take this one for "
            f"that one. Choose another port, or `rsm cluster decommission {other}` if that one is gone for good"
        )


async def wait_for_address(
    ledgers: LedgerStore, bookie_id: str, address: tuple[str, int], *, wait_s: float = WAIT_S_MAX
) -> None:
    """Wait until no other id is registered at an address, before the bookie listens there.

    Args:
        ledgers: The metadata.
        bookie_id: Of this bookie.
        address: Where it is going to listen.
        wait_s: How long to wait for a process that may have ended.

    Raises:
        CookieMismatchError: Another one stays registered there.

    """
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + wait_s
    await ledgers.store.sync(ledgers.root)
    others = [*await ledgers.writable_bookies(), *await ledgers.read_only_bookies()]
    for other in others:
        if other == bookie_id:
            continue
        for path in (paths.available_path(ledgers.root, other), paths.read_only_path(ledgers.root, other)):
            while True:
                gone = asyncio.Event()
                try:
                    found = decode_bookie_service_info((await ledgers.store.get(path, watch=gone.set)).value)
                except (NoNodeError, CorruptMetadataError):
                    break
                if found != address:
                    break
                if loop.time() >= give_up_at:
                    raise CookieMismatchError(
                        f"bookie {bookie_id}: bookie {other} is registered at the same address {_words(address)} and "
                        "has stayed so: clients would take the one for the other. Choose another port or --advertise"
                    )
                _LOGGER.info("waiting until %s is registered at this address no more", other)
                await _pause(gone, give_up_at - loop.time())


async def _pause(gone: asyncio.Event, limit_s: float) -> None:
    """Wait for a change of a node; look again after a while, as a lost session loses its watches."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(min(limit_s, _LOOK_S)):
            await gone.wait()


def _words(address: tuple[str, int] | None) -> str:
    return "an unknown address" if address is None else "{}:{}".format(*address)
