"""`LedgerClient`: ledgers are created, opened, listed and deleted here."""

# Longer than 400 lines: one class is what callers have of a cluster.

from __future__ import annotations

import builtins
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Final, Self, TypeVar

import msgspec

from ledger.client.adv_handle import AdvWriteHandle
from ledger.client.deferred_handle import DeferredWriteHandle
from ledger.client.ensemble_changer import EnsembleChanger
from ledger.client.placement import Placement
from ledger.client.pool import ConnectionPool
from ledger.client.read_handle import ReadHandle
from ledger.client.recovery import LedgerCloser, check_password
from ledger.client.settings import ClientSettings
from ledger.client.write_handle import WriteHandle
from ledger.core.metadata import DigestType, LedgerMetadata, LedgerState, Segment
from ledger.core.quorum import QuorumConfig
from ledger.errors import (
    BadVersionError,
    LedgerExistsError,
    MetadataSessionLostError,
    MetadataUnavailableError,
    NodeExistsError,
    NoSuchLedgerError,
    UsageError,
)
from ledger.ports import MetadataStore
from ledger.zookeeper.ledgers import LedgerStore

UNCLAIMED: Final = "rsm.unclaimed"
"""Custom metadata key of a ledger that waits for its writer (`LedgerClient.claim`)."""
CLAIMED: Final = "rsm.claimed"
"""Custom metadata key whose value tells whose claim came through."""

_ATTEMPTS_MAX: Final = 5
_TOKEN_BITS: Final = 63
_LEDGER_ID_MAX: Final = 2**63 - 1

Handle = TypeVar("Handle", bound=WriteHandle)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class LedgerClient:
    """A client of one BookKeeper cluster. Use it on one event loop; `async with` closes it.

    Args:
        ledgers: Metadata of ledgers.
        pool: Connections to bookies; closed with the client.
        rng: Chooses ensembles; for back-off and jitter too.
        settings: Limits and times.
        wall_ms: Wall clock, for the creation time in metadata.

    """

    def __init__(
        self,
        ledgers: LedgerStore,
        pool: ConnectionPool,
        rng: random.Random,
        settings: ClientSettings | None = None,
        *,
        wall_ms: Callable[[], int] = _wall_ms,
    ) -> None:
        self.settings = settings or pool.settings
        self._ledgers = ledgers
        self._pool = pool
        self._rng = rng
        self._wall_ms = wall_ms
        self._placement = Placement(ledgers, pool, rng)
        self._closer = LedgerCloser(ledgers, pool, rng, self._placement)
        # Those that can still append, oldest first.
        self._writers: dict[WriteHandle, None] = {}

    @classmethod
    async def connect(
        cls,
        metadata_uri: str | None = None,
        *,
        settings: ClientSettings | None = None,
        session_timeout_ms: int = 10_000,
        zk_auth_file: str | None = None,
        zk_tls_file: str | None = None,
        reach_timeout_s: float | None = None,
    ) -> Self:
        """Connect to a cluster.

        Args:
            metadata_uri: "zk+hierarchical://host:port;host:port/ledgers"; without one, `RSM_METADATA_URI`.
            settings: Limits and times; without them, `ClientSettings.from_environment()`.
            session_timeout_ms: Silence after which the metadata store gives this process up; with an elected leader in
                it, what a failover takes.
            zk_auth_file: Holds the log-in for ZooKeeper, see `ledger.zookeeper.auth.login_of`; None = what the
                environment names, if it does.
            zk_tls_file: Names the certificates for encrypted connections to ZooKeeper, see
                `ledger.zookeeper.tls_file.tls_of`; None = what the environment names, if it does.
            reach_timeout_s: For a metadata server to take a connection at all; None = as long as for its answer.

        Raises:
            UsageError: The address is malformed, or the file with the log-in, or one for TLS, cannot be used.
            MetadataUnavailableError: No metadata server answers.

        """
        from ledger.zookeeper.auth import login_of  # noqa: PLC0415 - kazoo only where a real session is opened
        from ledger.zookeeper.session import connect  # noqa: PLC0415
        from ledger.zookeeper.tls_file import tls_of  # noqa: PLC0415
        from ledger.zookeeper.uri import MetadataUri  # noqa: PLC0415

        uri = MetadataUri.of(metadata_uri)
        auth, tls = login_of(zk_auth_file), tls_of(zk_tls_file)
        store = await connect(
            uri.hosts, session_timeout_ms=session_timeout_ms, reach_timeout_s=reach_timeout_s, auth=auth, tls=tls
        )
        ledgers = LedgerStore(store, uri.ledgers_root)
        rng = random.Random()  # noqa: S311 - spreads load, guards nothing
        chosen = settings or ClientSettings.from_environment()
        return cls(ledgers, ConnectionPool(ledgers.bookie_address, rng, chosen), rng, chosen)

    @property
    def store(self) -> MetadataStore:
        """The metadata store, for those who keep nodes of their own beside BookKeeper's."""
        return self._ledgers.store

    @property
    def ledgers(self) -> LedgerStore:
        """The metadata of ledgers and bookies."""
        return self._ledgers

    async def create(
        self,
        *,
        ensemble_size: int = 2,
        write_quorum: int = 2,
        ack_quorum: int = 2,
        digest_type: DigestType = DigestType.CRC32C,
        password: bytes = b"",
        custom: Mapping[str, bytes] | None = None,
        deferred_sync: bool = False,
        ensemble_min: int | None = None,
        rolls: bool = False,
    ) -> WriteHandle:
        """Create a ledger on bookies chosen by `ClientSettings.placement`, and return its only writer.

        Args:
            ensemble_size: Bookies that share the ledger; more than `write_quorum` stripes it.
            write_quorum: Bookies that store each entry.
            ack_quorum: Bookies that must have an entry before it is confirmed.
            digest_type: How entries are protected.
            password: Who does not know it can neither write nor recover the ledger.
            custom: The application's own key-value pairs.
            deferred_sync: Bookies acknowledge entries before they sync them: call `force` on the handle to make them
                durable. See `DeferredWriteHandle`.
            ensemble_min: Take fewer bookies, down to this number, rather than fail or take suspect ones that do not
                answer; the write quorum shrinks with them. None = `ensemble_size`.
            rolls: You go on in a new ledger when this one fails. So where a bookie is silent (`silence_s`), no spare is
                there and an ack quorum of the others is well, it fails at once instead of waiting for that bookie.

        Raises:
            UsageError: The quorums do not fit together.
            NotEnoughBookiesError: Fewer writable bookies than `ensemble_size`, or `ensemble_min`.
            MetadataUnavailableError: The metadata store does not answer.

        """
        quorum = QuorumConfig(ensemble_size, write_quorum, ack_quorum)
        if ensemble_min is not None and not ack_quorum <= ensemble_min <= ensemble_size:
            raise UsageError(f"ensemble_min {ensemble_min}: need ack quorum {ack_quorum} <= it <= {ensemble_size}")
        metadata = await self._new_metadata(quorum, digest_type, password, custom, ensemble_min)
        ledger_id, version = await self._create_node(metadata)
        kind = DeferredWriteHandle if deferred_sync else WriteHandle
        return self._write_handle(ledger_id, metadata, version, kind, rolls=rolls)

    async def create_adv(
        self,
        *,
        ledger_id: int | None = None,
        ensemble_size: int = 2,
        write_quorum: int = 2,
        ack_quorum: int = 2,
        digest_type: DigestType = DigestType.CRC32C,
        password: bytes = b"",
        custom: Mapping[str, bytes] | None = None,
    ) -> AdvWriteHandle:
        """Create a ledger whose entry ids the application chooses, and return its only writer.

        Args:
            ledger_id: The ledger's own id, chosen by the application too; None draws one.
            ensemble_size: As for `create`.
            write_quorum: As for `create`.
            ack_quorum: As for `create`.
            digest_type: As for `create`.
            password: As for `create`.
            custom: As for `create`.

        Raises:
            UsageError: The quorums do not fit together, or the id is negative.
            LedgerExistsError: The id is taken.
            NotEnoughBookiesError: Fewer writable bookies than `ensemble_size`.
            MetadataUnavailableError: The metadata store does not answer.

        """
        quorum = QuorumConfig(ensemble_size, write_quorum, ack_quorum)
        if ledger_id is not None and not 0 <= ledger_id <= _LEDGER_ID_MAX:
            raise UsageError(f"a ledger id is in 0..{_LEDGER_ID_MAX}, not {ledger_id}", ledger_id=ledger_id)
        metadata = await self._new_metadata(quorum, digest_type, password, custom)
        found_id, version = await self._create_node(metadata, ledger_id)
        return self._write_handle(found_id, metadata, version, AdvWriteHandle)

    async def claim(self, ledger_id: int, *, password: bytes = b"") -> WriteHandle:
        """Become the writer of a ledger that was created with `UNCLAIMED` in its custom metadata.

        A ledger has one writer for ever, normally who created it. Such a ledger is created by one process for
        another to write; the first to claim it, by compare-and-set, is its writer.

        Raises:
            NoSuchLedgerError: It does not exist.
            WrongPasswordError: The password is another.
            UsageError: It has, or had, a writer already.
            MetadataUnavailableError: The metadata store does not answer.

        """
        mark = self._rng.getrandbits(_TOKEN_BITS).to_bytes(8, "big")
        for _ in range(_ATTEMPTS_MAX):
            metadata, version = await self._ledgers.read(ledger_id, sync=True)
            check_password(ledger_id, metadata, password)
            if metadata.custom.get(CLAIMED) == mark:
                return self._write_handle(
                    ledger_id, metadata, version, WriteHandle
                )  # the reply was lost, the claim was not
            if metadata.state != LedgerState.OPEN or UNCLAIMED not in metadata.custom:
                raise UsageError(
                    f"cannot write to ledger {ledger_id}: it is {metadata.state.name} and a ledger has one writer, "
                    "once; create a new one",
                    ledger_id=ledger_id,
                )
            custom = {key: value for key, value in metadata.custom.items() if key != UNCLAIMED} | {CLAIMED: mark}
            claimed = msgspec.structs.replace(metadata, custom=custom)
            with suppress(BadVersionError, MetadataUnavailableError, MetadataSessionLostError):
                version = await self._ledgers.write(ledger_id, claimed, version)
                return self._write_handle(ledger_id, claimed, version, WriteHandle)
        raise MetadataUnavailableError(
            f"could not claim ledger {ledger_id} in {_ATTEMPTS_MAX} attempts", ledger_id=ledger_id
        )

    async def open(self, ledger_id: int, *, password: bytes = b"") -> ReadHandle:
        """Open a ledger for reading and make its end final: fences its writer, recovers it, closes it.

        Raises:
            NoSuchLedgerError: It does not exist.
            WrongPasswordError: Nothing was changed.
            QuorumLostError: Too few bookies answer to know the end; nothing was cut off.
            MetadataUnavailableError: The metadata store does not answer.

        """
        metadata = await self._closer.recover(ledger_id, password)
        return ReadHandle(ledger_id, metadata, self._ledgers, self._pool)

    async def open_no_recovery(self, ledger_id: int, *, password: bytes | None = b"") -> ReadHandle:
        """Open a ledger for reading as it is, without disturbing its writer. `read_lac` tells how far it goes.

        Args:
            ledger_id: The ledger.
            password: None = whichever it has: reading disturbs nobody, and the metadata tell it to whoever reads them.

        Raises:
            NoSuchLedgerError: It does not exist.
            WrongPasswordError: The password is another.

        """
        metadata, _ = await self._ledgers.read(ledger_id, sync=True)
        check_password(ledger_id, metadata, password)
        return ReadHandle(ledger_id, metadata, self._ledgers, self._pool)

    async def delete(self, ledger_id: int) -> None:
        """Delete a ledger; bookies free its entries when they next look.

        Raises:
            NoSuchLedgerError: It does not exist.
            MetadataUnavailableError: The metadata store does not answer.

        """
        _, version = await self._ledgers.read(ledger_id, sync=True)
        for _ in range(_ATTEMPTS_MAX):
            try:
                await self._ledgers.delete(ledger_id, version)
            except (BadVersionError, MetadataUnavailableError, MetadataSessionLostError):
                try:
                    _, version = await self._ledgers.read(ledger_id, sync=True)
                except NoSuchLedgerError:
                    return  # the reply was lost, the deletion was not
            else:
                return
        raise MetadataUnavailableError(
            f"could not delete ledger {ledger_id} in {_ATTEMPTS_MAX} attempts", ledger_id=ledger_id
        )

    async def list(self) -> builtins.list[int]:
        """Return the ids of all ledgers, ascending."""
        return await self._ledgers.list()

    async def count_bookies(self) -> int:
        """Return how many bookies are writable, without those that failed lately and do not answer now.

        Raises:
            MetadataUnavailableError: The metadata store does not answer.

        """
        return await self._placement.count()

    def unreachable_bookies(self) -> frozenset[str]:
        """Return the bookies whose last sign to this client was a failure, registered or not."""
        return self._pool.unreachable()

    async def metadata(self, ledger_id: int, *, sync: bool = False) -> LedgerMetadata:
        """Return what the metadata store knows of a ledger.

        Raises:
            NoSuchLedgerError: It does not exist.

        """
        metadata, _ = await self._ledgers.read(ledger_id, sync=sync)
        return metadata

    async def close(self) -> None:
        """End all connections and the session; pending appends fail. Ledgers stay as they are."""
        for handle in list(self._writers):
            handle.abandon()
        await self._pool.close()
        await self._ledgers.store.close()

    async def __aenter__(self) -> Self:
        """Return the client."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the client."""
        await self.close()

    async def _new_metadata(
        self,
        quorum: QuorumConfig,
        digest_type: DigestType,
        password: bytes,
        custom: Mapping[str, bytes] | None,
        ensemble_min: int | None = None,
    ) -> LedgerMetadata:
        bookies = await self._placement.ensemble(quorum.ensemble_size, quorum.write_quorum, ensemble_min)
        quorum = QuorumConfig(len(bookies), min(quorum.write_quorum, len(bookies)), quorum.ack_quorum)
        return LedgerMetadata(
            quorum=quorum,
            state=LedgerState.OPEN,
            segments=(Segment(0, tuple(bookies)),),
            digest_type=digest_type,
            password=password,
            created_ms=self._wall_ms(),
            custom=dict(custom or {}),
            token=self._rng.getrandbits(_TOKEN_BITS),
        )

    def _write_handle(
        self, ledger_id: int, metadata: LedgerMetadata, version: int, kind: type[Handle], *, rolls: bool = False
    ) -> Handle:
        changer = EnsembleChanger(
            ledger_id, metadata, version, self._ledgers, self._placement, self._rng, self._pool.settings
        )

        async def close_ledger(metadata: LedgerMetadata, last_entry_id: int, length: int) -> LedgerMetadata:
            return await self._closer.close(ledger_id, metadata, last_entry_id, length, changer.version)

        handle = kind(
            ledger_id, metadata, self._pool, self._rng, close_ledger, changer, self._forget_writer, rolls=rolls
        )
        self._writers[handle] = None
        return handle

    def _forget_writer(self, handle: WriteHandle) -> None:
        self._writers.pop(handle, None)

    async def _create_node(self, metadata: LedgerMetadata, wanted_id: int | None = None) -> tuple[int, int]:
        """Create the ledger's node under a new id; the token tells whose a node is when a reply was lost."""
        ledger_id = await self._ledgers.new_ledger_id() if wanted_id is None else wanted_id
        for _ in range(_ATTEMPTS_MAX):
            try:
                return ledger_id, await self._ledgers.create(ledger_id, metadata)
            except (NodeExistsError, MetadataUnavailableError, MetadataSessionLostError):
                try:
                    found, version = await self._ledgers.read(ledger_id, sync=True)
                except NoSuchLedgerError:
                    continue
                if found.token == metadata.token:
                    return ledger_id, version
                if wanted_id is not None:
                    message = f"cannot create ledger {ledger_id}: it exists"
                    raise LedgerExistsError(message, ledger_id=ledger_id) from None
                ledger_id = await self._ledgers.new_ledger_id()
        raise MetadataUnavailableError(
            f"could not create a ledger in {_ATTEMPTS_MAX} attempts: the metadata store does not answer; try again"
        )
