"""The bookie process: everything is wired here, in the order that safety asks for.

Lock the disks, check whose they are, replay, bound the limbo if there is one, listen, register; only then is the
bookie said to be ready. On SIGTERM the reverse: unregister, answer what was taken, sync, leave.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import secrets
import shutil
import signal
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from ledger.bookie.collector import Collector
from ledger.bookie.connection_times import TimeLimits
from ledger.bookie.folders import absolute, locked, prepare
from ledger.bookie.identity import claim_disks, newest_ledger_id
from ledger.bookie.repairs import start_repairs
from ledger.bookie.server import BookieServer, ServerSettings
from ledger.bookie.settings import BookieSettings, check_bind
from ledger.bookie.sockets import allow_files
from ledger.bookie.tls import TlsPolicy
from ledger.client.settings import ClientSettings
from ledger.errors import (
    LedgerError,
    MetadataSessionLostError,
    MetadataUnavailableError,
    NoNodeError,
    UsageError,
)
from ledger.login import read_users
from ledger.replication.settings import ReplicationSettings
from ledger.store.disk import RealDisk, ThreadExecutor
from ledger.store.entry_store import Executors
from ledger.store.index import Index
from ledger.store.index_lmdb import LmdbIndex
from ledger.store.limbo import LEDGER_ID_MAX
from ledger.wire import paths
from ledger.wire.metadata_format import Cookie
from ledger.zk import session
from ledger.zk.ledgers import LedgerStore
from ledger.zk.registration import BookieRegistration
from ledger.zk.uri import MetadataUri

__all__ = ["EXIT_STORAGE_FAILED", "ReadyNotice", "run_bookie"]

_log = logging.getLogger(__name__)
EXIT_STORAGE_FAILED = 74
"""Exit code after a disk error that nothing may be assumed of (EX_IOERR)."""
_PROCESS_FILE = "process.json"
_BOOT_S_MAX = 60.0
_BOOT_RETRY_S = 0.5


class ReadyNotice(msgspec.Struct, frozen=True):
    """The line by which a bookie says that it is registered and serves."""

    ready: bool
    bookie_id: str
    port: int
    fsync: bool
    limbo: bool
    replayed_entries: int
    tls: str
    login: str


async def run_bookie(settings: BookieSettings, on_ready: Callable[[ReadyNotice], None]) -> int:
    """Run until SIGTERM or SIGINT; return the exit code.

    Raises:
        LedgerError: It cannot start: what is wrong and what would help.
        OSError: The disk or the network refuses.

    """
    check_bind(settings.bind, is_insecure=settings.is_insecure, has_tls=settings.tls is not None)
    if settings.port == 0:
        raise UsageError("--port 0: a bookie's port is part of its identity; name one")
    policy = settings.tls_policy()
    users = None if settings.auth_file is None else read_users(settings.auth_file)
    store_settings = settings.store_settings()
    folders = [store_settings.journal.folder, *store_settings.ledger_dirs]
    prepare(folders, is_fsync=settings.is_fsync)
    uri = MetadataUri.of(settings.metadata_uri)
    with locked(folders):
        store = await session.connect(uri.hosts, session_timeout_ms=settings.session_timeout_ms)
        try:
            return await _Process(settings, policy, users, LedgerStore(store, uri.ledgers_root)).run(on_ready)
        finally:
            await store.close()


class _Process:
    """The parts of one bookie process, and their order."""

    def __init__(
        self, settings: BookieSettings, tls: TlsPolicy, users: dict[str, str] | None, ledgers: LedgerStore
    ) -> None:
        self._settings = settings
        self._tls = tls
        self._users = users
        self._ledgers = ledgers
        self._store_settings = settings.store_settings()
        self._disk = RealDisk(fsync=settings.is_fsync)
        self._registration: BookieRegistration | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._stopped = asyncio.Event()

    async def run(self, on_ready: Callable[[ReadyNotice], None]) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopped.set)
        settings = self._settings
        host = settings.advertise or settings.bind
        bookie_id = f"{host}:{settings.port}"
        instance_id = str(uuid.UUID(bytes=os.urandom(16), version=4))
        await _answered(lambda: self._claim(bookie_id, instance_id))
        server = await self._open_server()
        await _answered(lambda: self._bound_limbo(server))
        port = await server.listen(settings.bind, settings.port)
        registration = BookieRegistration(
            self._ledgers.store,
            self._ledgers.root,
            bookie_id,
            host=host,
            port=port,
            is_read_only=server.store.is_read_only,
        )
        await _answered(lambda: self._clear_place(bookie_id))
        await registration.register()
        self._registration = registration
        await registration.set_read_only(server.store.is_read_only)  # What became of it meanwhile.
        is_in_limbo = bool(server.store.limbo.reasons)
        notice = ReadyNotice(
            ready=True,
            bookie_id=bookie_id,
            port=port,
            fsync=settings.is_fsync,
            limbo=is_in_limbo,
            replayed_entries=server.store.replayed_entry_count,
            tls=self._tls_words(),
            login="off" if self._users is None else "required",
        )
        self._write_process_file(notice)
        collector = Collector(
            server.store,
            self._ledgers,
            submit=self._executors.readers.submit,
            now_ms=lambda: time.time_ns() // 1_000_000,
        )
        self._tasks.append(loop.create_task(collector.run(settings.collect_s)))
        self._tasks += start_repairs(
            self._ledgers,
            server.store,
            bookie_id,
            Path(self._store_settings.ledger_dir),
            ReplicationSettings(),
            ClientSettings.from_environment(),
            has_auto_recovery=settings.has_auto_recovery,
        )
        gc.collect()
        gc.freeze()
        on_ready(notice)
        return await self._serve(server, registration)

    async def _serve(self, server: BookieServer, registration: BookieRegistration) -> int:
        stopped = asyncio.get_running_loop().create_task(self._stopped.wait())
        server.failed.add_done_callback(lambda _: self._stopped.set())
        await stopped
        for task in self._tasks:
            task.cancel()
        if server.failed.done():
            _log.critical("the bookie stops: its storage failed: %s", server.failed.result())
            with contextlib.suppress(LedgerError):
                await registration.unregister()
            return EXIT_STORAGE_FAILED
        await registration.unregister()
        await server.close()
        return 0

    async def _claim(self, bookie_id: str, new_instance_id: str) -> None:
        settings, store_settings = self._settings, self._store_settings
        instance_id = await self._ledgers.ensure_layout(new_instance_id)
        ledger_dirs = tuple(map(absolute, settings.ledger_roots))
        cookie = Cookie(bookie_id, absolute(settings.journal_root), ledger_dirs, instance_id)
        folders = [store_settings.journal.folder, *store_settings.ledger_dirs]
        await claim_disks(self._disk, self._ledgers, cookie, folders, limbo_folder=store_settings.ledger_dir)

    def _tls_words(self) -> str:
        """Say in a word what connections must do about TLS."""
        if self._tls.context is None:
            return "off"
        words = "required" if self._tls.is_required else "offered"
        return f"{words}, with client certificates" if self._tls.context.verify_mode else words

    async def _clear_place(self, bookie_id: str) -> None:
        """Delete the node of a killed process instead of waiting for its session to expire.

        Safe because the disks carry this id and are locked by this process: whoever made the node is gone.
        """
        root = self._ledgers.root
        for path in (paths.available_path(root, bookie_id), paths.read_only_path(root, bookie_id)):
            with contextlib.suppress(NoNodeError):
                await self._ledgers.store.delete(path)

    async def _open_server(self) -> BookieServer:
        self._executors = Executors(
            ThreadExecutor("journal"), ThreadExecutor("converter"), ThreadExecutor("reader", worker_count=2)
        )
        return await BookieServer.open(
            self._disk,
            self._executors,
            self._store_settings,
            self._open_index,
            nonce=lambda: secrets.randbits(32),
            on_read_only=self._on_read_only,
            server_settings=ServerSettings(
                connections_max=allow_files(self._settings.connections_max),
                is_read_only=self._settings.is_read_only,
                users=self._users,
                times=TimeLimits(idle_s=self._settings.idle_s),
            ),
            tls=self._tls,
        )

    def _open_index(self, *, reset: bool) -> Index:
        path = f"{self._settings.ledger_roots[0]}/index"
        if reset:
            shutil.rmtree(path, ignore_errors=True)
        return LmdbIndex(path, fsync=self._settings.is_fsync)

    def _on_read_only(self, is_read_only: bool) -> None:
        if self._registration is not None:
            move = self._registration.set_read_only(is_read_only)
            self._tasks.append(asyncio.get_running_loop().create_task(move))

    async def _bound_limbo(self, server: BookieServer) -> None:
        limbo = server.store.limbo
        if limbo.ledger_id_max == LEDGER_ID_MAX:
            await server.store.bound_limbo(await newest_ledger_id(self._ledgers))
        if limbo.reasons:
            _log.error(
                "this bookie lost data and is in limbo: it serves what it holds, answers 'unknown' for the rest, and "
                "takes no adds to ledgers up to %d, until it has everything again from other bookies. That runs by "
                "itself; `rsm bookie info` tells how far it is",
                server.store.limbo.ledger_id_max,
                extra={"reasons": limbo.reasons},
            )

    def _write_process_file(self, notice: ReadyNotice) -> None:
        settings = self._settings
        content = {
            "pid": os.getpid(),
            "journal_dir": absolute(settings.journal_root),
            "ledger_dirs": list(map(absolute, settings.ledger_roots)),
            **msgspec.to_builtins(notice),
        }
        path = Path(self._store_settings.ledger_dir) / _PROCESS_FILE
        path.write_bytes(msgspec.json.encode(content))


async def _answered(attempt: Callable[[], Awaitable[None]]) -> None:
    """Do what may be done again until the metadata store has answered, for a minute at most."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + _BOOT_S_MAX
    while True:
        try:
            await attempt()
        except (MetadataUnavailableError, MetadataSessionLostError) as error:
            if loop.time() >= give_up_at:
                raise
            _log.warning("the metadata store gave no answer while the bookie starts, trying again: %s", error)
            await asyncio.sleep(_BOOT_RETRY_S)
        else:
            return
