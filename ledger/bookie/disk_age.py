"""The age of a bookie's disks: a counter that only rises, on the disks first and then in the metadata.

A data folder that is an older copy of itself (a snapshot of a machine, a backup that was put back) is sound in every
byte. What shows it is that the metadata know a higher age than the disks: then what was acknowledged since is lost, and
the bookie is in limbo. The age rises at each start before the bookie serves, and while it serves: when the journal has
been still for a second, every five seconds under load, and at a clean end. What a copy lacks of the seconds before
nobody can see.

On the disks it lies among the landmarks, in the metadata in the node that remembers that the bookie once had a cookie.

* disks n, metadata n, raised by one process   as it was left
* disks n + 1, metadata n                      a crash between the two: go on
* disks n, metadata above n                    the disks are an older copy: limbo
* disks n, metadata n, by different processes  a copy of the disks served meanwhile: limbo
* disks above n + 1, metadata n                the metadata are the older ones: said in the log, nothing is lost here
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from ledger.decoding import json_decoder
from ledger.errors import (
    BadVersionError,
    CookieMismatchError,
    MetadataSessionLostError,
    MetadataUnavailableError,
    NoNodeError,
)
from ledger.ports import MetadataStore
from ledger.storage.disk import Disk, DiskExecutor
from ledger.storage.landmarks import Age, Landmarks
from ledger.storage.limbo import load_limbo, save_limbo
from ledger.wire import paths
from ledger.zookeeper.registration import remember_cookie

_LOGGER = logging.getLogger(__name__)
_LOOK_S = 1.0
_BUSY_S = 5.0


def find_rolled_back(held: Age, registered: Age) -> str:
    """Say what shows that disks are an older copy of themselves; empty if nothing does.

    Args:
        held: The age that the disks show.
        registered: The age that the metadata hold.

    """
    if held.count < registered.count:
        return f"the disks have the age {held.count}, the metadata {registered.count}: the disks are an older copy"
    if held.count == registered.count and held.by != registered.by:
        return f"the disks and the metadata have the age {held.count}, but another process raised it: a copy served"
    return ""


class DiskAge:
    """Keeps the age of one bookie's disks, from one process.

    Args:
        store: The metadata store.
        root: BookKeeper's root node.
        bookie_id: Of the bookie.
        process_id: Tells this process from every other one that has these disks, or a copy of them.

    """

    def __init__(self, store: MetadataStore, root: str, bookie_id: str, process_id: str) -> None:
        self._store = store
        self._root = root
        self._bookie_id = bookie_id
        self._process_id = process_id
        self._path = paths.former_bookie_path(root, bookie_id)
        self._version = 0
        self._is_told = False  # The metadata hold the age that the disks have.

    async def adopt(self, disk: Disk, folder: str) -> None:
        """Give new disks the age that the metadata know of former ones: for those, other rules speak."""
        Landmarks(disk, folder).replace(age=await self._read())

    async def begin(self, disk: Disk, folder: str) -> None:
        """Compare the ages and raise them, before anything is replayed; may be tried again.

        A loss is durable as limbo before either age changes.

        Raises:
            CookieMismatchError: Another process raises the age of a copy of these disks.
            MetadataUnavailableError: No answer.
            OSError: The disk refuses.

        """
        registered = await self._read()
        landmarks = Landmarks(disk, folder)
        held = landmarks.held.age
        if held.by != self._process_id:
            reason = find_rolled_back(held, registered)
            if landmarks.damage:
                reason = f"{landmarks.damage}: the age of the disks cannot be told"
            elif landmarks.is_new and registered.count:
                reason = f"the landmarks are gone, the metadata know disks of the age {registered.count}"
            if reason:
                save_limbo(disk, folder, load_limbo(disk, folder).with_losses([f"{folder}: {reason}"]))
            elif held.count > registered.count + 1:
                _LOGGER.error(
                    "the metadata know this bookie's disks at the age of %d, they have %d: were the metadata put back "
                    "from an older copy? Nothing is lost here; ledgers that were created since may be unknown there",
                    registered.count,
                    held.count,
                )
            landmarks.replace(age=Age(max(held.count, registered.count) + 1, self._process_id))
        await self._tell(landmarks.held.age)

    async def keep(
        self,
        landmarks: Landmarks,
        executor: DiskExecutor,
        batch_count: Callable[[], int],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """Raise the age while the bookie serves, until cancelled.

        Args:
            landmarks: Of the store.
            executor: Waits for the disk.
            batch_count: What the journal has written since the start.
            on_failure: Called when the disks must not be served any more.

        """
        loop = asyncio.get_running_loop()
        raised_at, raised_for, seen = loop.time(), batch_count(), batch_count()
        while True:
            await asyncio.sleep(_LOOK_S)
            before, seen = seen, batch_count()
            is_due = seen == before or loop.time() - raised_at >= _BUSY_S
            if self._is_told and (seen == raised_for or not is_due):
                continue
            raised_at, raised_for = loop.time(), seen
            try:
                await self.raise_age(landmarks, executor)
            except (OSError, CookieMismatchError) as error:
                on_failure(error)
                return

    async def raise_age(self, landmarks: Landmarks, executor: DiskExecutor) -> None:
        """Raise the age once, unless the metadata have not taken the last one yet: then tell that one again.

        Raises:
            CookieMismatchError: Another process raises the age of a copy of these disks.
            OSError: The disk refuses.

        """
        if self._is_told:
            await executor.submit(lambda: landmarks.raise_age(self._process_id))
        try:
            await self._tell(landmarks.held.age)
        except (MetadataUnavailableError, MetadataSessionLostError) as error:
            _LOGGER.info("the age of the disks is told to the metadata later: %s", error)

    async def _read(self) -> Age:
        """Return what the metadata hold, and take note of its version."""
        await self._store.sync(self._path)
        try:
            value, self._version = await self._store.get(self._path)
            return json_decoder(Age).decode(value) if value else Age()
        except NoNodeError:
            self._version = -1
            return Age()
        except msgspec.DecodeError:
            _LOGGER.error("the age of this bookie's disks cannot be read in the metadata, and is written anew")
            return Age()

    async def _tell(self, age: Age) -> None:
        """Have the metadata hold an age of this process."""
        self._is_told = False
        while True:
            try:
                self._version = await self._store.set(self._path, msgspec.json.encode(age), self._version)
            except NoNodeError:
                await remember_cookie(self._store, self._root, self._bookie_id)
                self._version = 0
            except BadVersionError:
                registered = await self._read()
                if registered != age and registered.count >= age.count:
                    raise CookieMismatchError(
                        f"bookie {self._bookie_id}: another process raises the age of its disks (to "
                        f"{registered.count}; here it is {age.count}): it serves a copy of them. Stop one of the two"
                    ) from None
            else:
                break
        self._is_told = True
