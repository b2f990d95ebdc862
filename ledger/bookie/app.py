"""The bookie process: everything is wired here, in the order that safety asks for.

Lock the disks, check whose they are, replay, bound the limbo if there is one, listen, register; only then is the
bookie said to be ready. On SIGTERM the reverse: unregister, answer what was taken, sync, leave.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import logging
import os
import secrets
import shutil
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

from ledger.bookie.births import key_finder
from ledger.bookie.collector import Collector
from ledger.bookie.connection_times import TimeLimits
from ledger.bookie.disk_age import DiskAge
from ledger.bookie.disk_facts import DiskFactsKeeper
from ledger.bookie.drain_order import DrainOrder
from ledger.bookie.folders import absolute, lock_mark, locked, prepare
from ledger.bookie.gate import GateLimits
from ledger.bookie.http_port import open_http_port
from ledger.bookie.identity import check_disks, claim_disks, newest_ledger_id
from ledger.bookie.notice import BookieReadyNotice, make_notice, write_process_file
from ledger.bookie.pages import BookiePages, ServingBookie
from ledger.bookie.place import check_address, check_own_id, take_own_id, wait_for_address
from ledger.bookie.readiness import BookieHealth, ReadinessKeeper
from ledger.bookie.repairs import start_repairs
from ledger.bookie.server import BookieServer, ServerSettings
from ledger.bookie.settings import BookieSettings, check_bind
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
from ledger.open_files import allow_files
from ledger.private_files import make_private
from ledger.process_guard import ProcessGuard
from ledger.replication.settings import ReplicationSettings
from ledger.storage.disk import RealDisk, ThreadedDiskExecutor, write_atomically
from ledger.storage.entry_store import EntryStore
from ledger.storage.index import Index
from ledger.storage.index_check import check_index, died_in_a_library, tell_of_death
from ledger.storage.index_lmdb import LmdbIndex
from ledger.storage.limbo import LEDGER_ID_MAX
from ledger.storage.recovery import DOUBT_FILE_NAME
from ledger.storage.settings import Executors
from ledger.wire import paths
from ledger.wire.metadata_format import Cookie
from ledger.zookeeper import session
from ledger.zookeeper.ledgers import LedgerStore
from ledger.zookeeper.registration import BookieRegistration
from ledger.zookeeper.uri import MetadataUri

_LOGGER = logging.getLogger(__name__)
EXIT_STORAGE_FAILED = 74
"""Exit code after a disk error that nothing may be assumed of (EX_IOERR)."""
_DEATH_FILE = "death.txt"
_BOOT_S_MAX = 60.0
_BOOT_RETRY_S = 0.5
_AGE_S_MAX = 1.0
_STOP_S = 60.0  # What it holds in memory is written first; nobody else is waited for longer than a second.


async def run_bookie(settings: BookieSettings, on_ready: Callable[[BookieReadyNotice], None]) -> int:
    """Run until SIGTERM or SIGINT; return the exit code.

    Raises:
        LedgerError: It cannot start: what is wrong and what would help.
        OSError: The disk or the network refuses.

    """
    check_bind(settings.bind, is_insecure=settings.is_insecure, has_tls=settings.tls is not None)
    if settings.port == 0:
        raise UsageError("--port 0: clients find a bookie at its port, also after a restart; name one")
    if settings.own_id is not None:
        check_own_id(settings.own_id)
    policy = settings.tls_policy()
    users = None if settings.auth_file is None else read_users(settings.auth_file)
    if settings.principals is not None and users is None and (settings.tls is None or settings.tls.ca is None):
        raise UsageError("--principals: no client can prove who it is: give --auth-file, or --tls-ca for certificates")
    store_settings = settings.store_settings()
    folders = [store_settings.journal.folder, *store_settings.ledger_dirs]
    prepare(folders, is_fsync=settings.is_fsync)
    uri = MetadataUri.of(settings.metadata_uri)
    with (
        locked(folders),
        _told_of_death(store_settings.ledger_dir),
        ProcessGuard("bookie", stall_s=settings.stall_s, stop_s=_STOP_S) as guard,
    ):
        connecting = session.connect(uri.hosts, session_timeout_ms=settings.session_timeout_ms)
        store = await guard.unless_stopped(connecting)
        if store is None:
            return 0
        try:
            return await _Process(settings, policy, users, LedgerStore(store, uri.ledgers_root), guard).run(on_ready)
        finally:
            await store.close()


@contextlib.contextmanager
def _told_of_death(folder: str) -> Iterator[None]:
    """Doubt the index if the process before was ended by a library or a processor's signal; note if this one is."""
    path = f"{folder}/{_DEATH_FILE}"
    words = died_in_a_library(path)
    if words:
        _LOGGER.error("the bookie was ended in a library; its index is rebuilt from the segments. It said: %s", words)
        write_atomically(RealDisk(), folder, DOUBT_FILE_NAME, b"")
    with tell_of_death(path):
        yield
        faulthandler.disable()


class _Process:
    """The parts of one bookie process, and their order."""

    def __init__(
        self,
        settings: BookieSettings,
        tls: TlsPolicy,
        users: dict[str, str] | None,
        ledgers: LedgerStore,
        guard: ProcessGuard,
    ) -> None:
        self._settings = settings
        self._tls = tls
        self._users = users
        self._ledgers = ledgers
        self._store_settings = settings.store_settings()
        self._disk = RealDisk(fsync=settings.is_fsync)
        self._registration: BookieRegistration | None = None
        self._age: DiskAge | None = None
        self._drain: DrainOrder | None = None
        self._server: BookieServer | None = None
        self._tasks: list[asyncio.Task[None]] = []
        folder = Path(self._store_settings.ledger_dir)
        self._readiness = ReadinessKeeper(folder, session_s=settings.session_timeout_ms / 1000)
        self._guard = guard
        self._stopped = guard.stopped

    async def run(self, on_ready: Callable[[BookieReadyNotice], None]) -> int:
        settings = self._settings
        bookie_id = settings.bookie_id
        if not settings.is_read_only:  # Such a one takes no adds, whatever is ordered.
            self._drain = DrainOrder(self._ledgers, bookie_id)
        await self._readiness.forget()  # What the process before has said.
        pages, http = await open_http_port(settings, self._ledgers, self._readiness)
        try:
            registration = await self._guard.unless_stopped(self._boot(bookie_id))
            server = self._server
            if registration is None or server is None:
                if server is not None:
                    await server.close()
                return 0
            address = "" if http is None else http.address
            notice = make_notice(settings, self._tls, bookie_id, server.store, http_address=address)
            return await self._run_on(server, registration, pages, notice, on_ready)
        finally:
            if http is not None:
                await http.stop()

    async def _run_on(
        self,
        server: BookieServer,
        registration: BookieRegistration,
        pages: BookiePages,
        notice: BookieReadyNotice,
        on_ready: Callable[[BookieReadyNotice], None],
    ) -> int:
        settings, bookie_id = self._settings, notice.bookie_id
        loop = asyncio.get_running_loop()
        write_process_file(self._store_settings.ledger_dir, settings, notice)
        collector = Collector(
            server.store,
            self._ledgers,
            submit=self._executors.readers.submit,
            now_ms=lambda: time.time_ns() // 1_000_000,
        )
        self._tasks.append(loop.create_task(collector.run(settings.collect_s)))
        repairs, recovery = start_repairs(
            self._ledgers,
            server.store,
            bookie_id,
            Path(self._store_settings.ledger_dir),
            ReplicationSettings(),
            ClientSettings.from_environment(),
            has_auto_recovery=settings.has_auto_recovery,
        )
        self._tasks += repairs
        folders = self._store_settings
        pages.bookie = ServingBookie(
            bookie_id,
            server,
            collector,
            DiskFactsKeeper(server.store, self._executors.readers, folders.journal.folder, folders.ledger_dirs),
            lambda: self._state(server, registration),
            recovery,
            settings.is_read_only,
            self._drain,
        )
        if self._drain is not None:
            self._tasks.append(loop.create_task(self._drain.keep(server.store)))
        self._tasks.append(loop.create_task(self._keep_age(server.store)))
        gc.collect()
        gc.freeze()
        self._guard.ready()
        await self._readiness.say(self._state(server, registration), time.monotonic())
        self._tasks.append(loop.create_task(self._readiness.keep(lambda: self._state(server, registration))))
        on_ready(notice)
        return await self._serve(server, registration)

    def _state(self, server: BookieServer, registration: BookieRegistration) -> BookieHealth:
        store = server.store
        journal = store.journal
        return BookieHealth(
            session=self._ledgers.store.session_state,
            is_registered=registration.is_registered,
            is_read_only=store.is_read_only,
            is_in_limbo=bool(store.limbo.reasons),
            batch_count=journal.batch_count,
            is_writing=journal.is_writing,
            failure=str(journal.failure or ""),
        )

    async def _boot(self, bookie_id: str) -> BookieRegistration:
        """Do what must come before a bookie may say that it is ready."""
        settings, ledgers = self._settings, self._ledgers
        instance_id = str(uuid.UUID(bytes=os.urandom(16), version=4))
        address = (settings.host, settings.port)
        folders = self._store_settings
        holder = lock_mark(folders.journal.folder)
        check_disks(self._disk, [folders.journal.folder, *folders.ledger_dirs], bookie_id)
        if settings.own_id is not None:
            await _answered(partial(take_own_id, ledgers, bookie_id, holder))
        await _answered(lambda: check_address(ledgers, bookie_id, address))
        await _answered(lambda: self._claim(bookie_id, instance_id))
        server = self._server = await self._open_server()
        await _answered(lambda: self._bound_limbo(server))
        await _answered(lambda: wait_for_address(ledgers, bookie_id, address))
        port = await server.listen(settings.bind, settings.port)
        if self._drain is not None:
            await _answered(partial(self._drain.obey, server.store))
        registration = BookieRegistration(
            self._ledgers.store,
            self._ledgers.root,
            bookie_id,
            host=settings.host,
            port=port,
            holder=holder,
            is_read_only=server.store.is_read_only,
        )
        if settings.own_id is None:
            await _answered(lambda: self._clear_place(bookie_id))
        await registration.register()
        self._registration = registration
        await registration.set_read_only(server.store.is_read_only)  # What became of it meanwhile.
        return registration

    async def _serve(self, server: BookieServer, registration: BookieRegistration) -> int:
        stopped = asyncio.get_running_loop().create_task(self._stopped.wait())
        server.failed.add_done_callback(lambda _: self._stopped.set())
        await stopped
        for task in self._tasks:
            task.cancel()
        await self._readiness.forget()
        if server.failed.done():
            _LOGGER.critical("the bookie stops: its storage failed: %s", server.failed.result())
            with contextlib.suppress(LedgerError):
                await registration.unregister()
            return EXIT_STORAGE_FAILED
        await registration.unregister()
        assert self._age is not None
        # The next start raises it in any case: ZooKeeper may be away.
        with contextlib.suppress(LedgerError, OSError, TimeoutError):
            async with asyncio.timeout(_AGE_S_MAX):
                await self._age.raise_age(server.store.landmarks, self._executors.readers)
        await server.close()
        return 0

    async def _keep_age(self, store: EntryStore) -> None:
        assert self._age is not None
        await self._age.keep(store.landmarks, self._executors.readers, lambda: store.journal.batch_count, store.fail)

    async def _claim(self, bookie_id: str, new_instance_id: str) -> None:
        settings, store_settings = self._settings, self._store_settings
        instance_id = await self._ledgers.ensure_layout(new_instance_id)
        ledger_dirs = tuple(map(absolute, settings.ledger_roots))
        cookie = Cookie(bookie_id, absolute(settings.journal_root), ledger_dirs, instance_id)
        folders = [store_settings.journal.folder, *store_settings.ledger_dirs]
        age = self._age = self._age or DiskAge(self._ledgers.store, self._ledgers.root, bookie_id, os.urandom(8).hex())
        await claim_disks(self._disk, self._ledgers, cookie, folders, age, limbo_folder=store_settings.ledger_dir)
        await age.begin(self._disk, store_settings.ledger_dir)

    async def _clear_place(self, bookie_id: str) -> None:
        """Delete the node of a killed process instead of waiting for its session to expire.

        Safe because the disks carry this id, which is the address, and are locked by this process: whoever made the
        node is gone. Names of their own are cleared by `take_own_id`.
        """
        root = self._ledgers.root
        for path in (paths.available_path(root, bookie_id), paths.read_only_path(root, bookie_id)):
            with contextlib.suppress(NoNodeError):
                await self._ledgers.store.delete(path)

    async def _open_server(self) -> BookieServer:
        self._executors = Executors(
            ThreadedDiskExecutor("journal"),
            ThreadedDiskExecutor("converter"),
            ThreadedDiskExecutor("reader", worker_count=2),
        )
        return await BookieServer.open(
            self._disk,
            self._executors,
            self._store_settings,
            self._open_index,
            nonce=lambda: secrets.randbits(32),
            on_read_only=self._on_read_only,
            server_settings=_server_settings(self._settings, self._users),
            tls=self._tls,
            find_key=None if self._settings.takes_any_ledger else key_finder(self._ledgers),
        )

    def _open_index(self, *, reset: bool) -> Index:
        path = f"{self._settings.ledger_roots[0]}/index"
        if reset:
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(path)  # What stays of an old one would be believed.
        else:
            check_index(path)
        make_private(path)
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
            _LOGGER.error(
                "this bookie lost data and is in limbo: it serves what it holds, answers 'unknown' for the rest, and "
                "takes no adds to ledgers up to %d, until it has everything again from other bookies. That runs by "
                "itself; `rsm bookie info` tells how far it is. Seen: %s",
                server.store.limbo.ledger_id_max,
                "; ".join(limbo.reasons),
            )


def _server_settings(settings: BookieSettings, users: dict[str, str] | None) -> ServerSettings:
    """Return the limits of the server; the process's limit of open files is raised for them."""
    limits = settings.connections
    count_max = allow_files(limits.count_max)
    gate = GateLimits(count_max, min(limits.address_max, count_max), min(limits.unadmitted_max, max(1, count_max // 2)))
    return ServerSettings(
        gate=gate,
        unfinished_bytes_max=limits.unfinished_mib_max << 20,
        is_read_only=settings.is_read_only,
        users=users,
        auth_file=settings.auth_file,
        principals=settings.principals,
        times=TimeLimits(idle_s=settings.idle_s),
    )


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
            _LOGGER.warning("the metadata store gave no answer while the bookie starts, trying again: %s", error)
            await asyncio.sleep(_BOOT_RETRY_S)
        else:
            return
