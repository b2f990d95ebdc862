"""Backups that run now, as the metadata store shows them; files that killed ones left behind are removed meanwhile.

    <root>/backups/<log id>-running-<token>   a backup of the log that runs; goes with its session
    <root>/backups/<log id>-sweeping          somebody removes files that no backup names; goes likewise

1. A backup shows itself before it writes, and waits while somebody sweeps: of the two at least one sees the other.
2. Who sweeps is the only backup that runs. What it finds that no manifest names, nobody will name.
3. Where a manifest is damaged nothing is swept: it may name those files.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Self

from ledger.errors import MetadataError, NodeExistsError, NoNodeError
from ledger.ports import MetadataStore
from rsm_spark.backup.catalog import find_backups
from rsm_spark.backup.manifest import BackupError, is_backup_file
from rsm_spark.backup.place import BackupPlace

_PATIENCE_S = 60.0


class RunningBackup:
    """One backup of a log that runs.

    Args:
        store: Session with the metadata store.
        rsm_root: Root of the logs.
        log_id: Of the log.

    """

    def __init__(self, store: MetadataStore, rsm_root: str, log_id: str) -> None:
        self._store = store
        self._root = f"{rsm_root}/backups"
        self._running = f"{log_id}-running-"
        self._name = f"{self._running}{secrets.token_hex(8)}"
        self._sweeping = f"{self._root}/{log_id}-sweeping"

    async def __aenter__(self) -> Self:
        """Show that it runs.

        Raises:
            BackupError: Somebody sweeps for more than a minute.
            MetadataError: The metadata store cannot be asked.

        """
        await self._store.create(f"{self._root}/{self._name}", ephemeral=True, parents=True)
        changed = asyncio.Event()
        try:
            async with asyncio.timeout(_PATIENCE_S):
                while await self._store.exists(self._sweeping, watch=changed.set) is not None:
                    await changed.wait()
                    changed.clear()
        except TimeoutError:
            await self._end()
            raise BackupError(f"{self._sweeping}: another backup removes files for too long: try again") from None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Show that it has ended."""
        await self._end()

    async def _end(self) -> None:
        with contextlib.suppress(MetadataError):  # It goes with the session too.
            await self._store.delete(f"{self._root}/{self._name}")

    async def sweep(self, place: BackupPlace, log: str, log_id: str) -> int:
        """Remove files of the log that no backup names, unless another backup of it runs; return how many.

        Raises:
            BackupError: The place cannot be read or written.
            MetadataError: The metadata store cannot be asked.

        """
        path, own = self._sweeping, self._name.encode()
        try:
            await self._store.create(path, own, ephemeral=True)
        except NodeExistsError:
            return 0
        try:
            names = [name for name in await self._store.children(self._root) if name.startswith(self._running)]
            if names != [self._name]:
                return 0
            left = await asyncio.to_thread(left_files, place, log, log_id)
            for number, remove in enumerate(left):
                with contextlib.suppress(NoNodeError):
                    if (await self._store.get(path)).value == own:
                        await asyncio.to_thread(remove)
                        continue
                return number  # The session was lost: others may write by now.
            return len(left)
        finally:
            with contextlib.suppress(MetadataError):
                await self._store.delete(path)


def left_files(place: BackupPlace, log: str, log_id: str) -> list[Callable[[], None]]:
    """Return calls that remove what killed backups of a log have left: half files, and files that no backup names.

    Raises:
        BackupError: The place cannot be read.

    """
    folder = f"{log}/{log_id}"
    left: list[Callable[[], None]] = [partial(place.discard, one) for one in place.unfinished(folder)]
    there = sorted(path for path in place.sizes(folder) if is_backup_file(path))
    found = find_backups(place, log, log_id)
    if found.damaged:
        return left
    named = {path for manifest in found.whole for path in manifest.files}
    return left + [partial(place.delete, f"{folder}/{path}") for path in there if path not in named]
