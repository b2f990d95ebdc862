"""Names of plain logs: made, described, renamed, deleted; and what each of them keeps."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import time
from collections.abc import AsyncGenerator, Callable
from typing import NamedTuple

import msgspec

from ledger.client.client import LedgerClient
from ledger.core.metadata import NO_ENTRY
from ledger.errors import NodeExistsError, NoNodeError
from ledger.ports import NodeChange
from rsm_spark.core.chain import Leadership, LogChain, chain_path, encode_chain
from rsm_spark.core.envelope import body_of
from rsm_spark.core.machine import decode_description
from rsm_spark.core.plain_log import PLAIN_LOG, PlainLogError
from rsm_spark.core.position import LogPosition
from rsm_spark.core.records import KernelRecord, decode_records
from rsm_spark.errors import LogError, MissingLogError, NoSuchLogError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.commit_log import LogReader
from rsm_spark.log.consumers import LogConsumers, RegisteredConsumer, trimmed_revision
from rsm_spark.log.deletion import delete_log, ensure_node
from rsm_spark.log.discovery import Discovery
from rsm_spark.log.log_policy import LogPolicy, change_policy, encode_policy, policy_path, read_policy
from rsm_spark.log.renaming import rename_log
from rsm_spark.logs.context import LogContext
from rsm_spark.runtime.settings import ReplicaSettings

_WATCH_LOOK_S = 5.0
_DESCRIBED_WITHIN = 20
_NAME_MAX = 200


class LogNameChange(NamedTuple):
    """Name of a log that came or went.

    Attributes:
        log: The name.
        is_there: There is a log of this name now.

    """

    log: str
    is_there: bool


class LogInfo(msgspec.Struct, frozen=True):
    """Facts about a plain log that are known without reading it.

    Attributes:
        log: Its name.
        log_id: Its uuid, 32 hex digits.
        first_position: Of the first record that is still there, or a later one's; 0 = the log has no ledger yet.
        closed_position: Last position of its closed ledgers.
        ledgers: How many there are.
        closed_bytes: Payload bytes of the closed ones.
        epoch: How often a writer was opened.
        writer: The one that was opened last; "" = none was.
        is_open: A writer says that it is alive.
        key_id: Of the key that seals it; "" = none does.
        policy: What it keeps.
        subscriptions: Stored positions of readers, and other consumers.

    """

    log: str
    log_id: str
    first_position: int
    closed_position: int
    ledgers: int
    closed_bytes: int
    epoch: int
    writer: str
    is_open: bool
    key_id: str
    policy: LogPolicy
    subscriptions: tuple[RegisteredConsumer, ...]


class LogNames:
    """Names of plain logs; `Logs` is what programs use.

    Args:
        client: Of the ledgers.
        settings: Of replicas, as far as they concern logs: `rsm_root`, quorums, passwords, keys, when ledgers roll.
        name: Of this program, as others see it; None = host and process.
        rng: For back-off, and for what has to be unique.
        clock_ms: Wall clock, milliseconds since 1970; None = this machine's.

    """

    def __init__(
        self,
        client: LedgerClient,
        settings: ReplicaSettings | None = None,
        *,
        name: str | None = None,
        rng: random.Random | None = None,
        clock_ms: Callable[[], int] | None = None,
    ) -> None:
        self.settings = settings or ReplicaSettings()
        self._client = client
        self._name = name or f"{socket.gethostname()}-{os.getpid()}"
        self._rng = rng or random.SystemRandom()
        self._clock_ms = clock_ms or _wall_ms
        self._root = self.settings.rsm_root

    async def create(
        self,
        log: str,
        *,
        retention_s: float | None = None,
        retention_bytes: int | None = None,
        until_read: bool = False,
        exist_ok: bool = False,
    ) -> None:
        """Make a log.

        Without limits it keeps every record. Trimmed are whole ledgers, closed ones, by the writer; what a subscription
        has not read stays, within the subscription's limits.

        Args:
            log: Its name: printable, without a slash.
            retention_s: Records that are older go.
            retention_bytes: The oldest go as long as newer closed ledgers have so many bytes.
            until_read: What every subscription has read goes, if there is one.
            exist_ok: A log of this name may be there already; it stays as it is.

        Raises:
            LogError: The name is none, or taken; or it is a former name of a log (`RenamedLogError`).
            MetadataError: ZooKeeper cannot be asked; the log may be there.

        """
        _check_name(log)
        store, log_id = self._client.store, f"{self._rng.getrandbits(128):032x}"
        policy = LogPolicy(
            None if retention_s is None else int(retention_s * 1000), retention_bytes, until_read=until_read
        )
        path = chain_path(log, self._root)
        for parent in (f"{self._root}/logs", f"{self._root}/policies"):
            await ensure_node(store, parent)
        if await store.exists(path) is None:
            await ChainStore(store, log, self._root).tell_renamed()
        try:
            await store.change([
                NodeChange(path, encode_chain(LogChain(log_id)), None),
                NodeChange(policy_path(log_id, self._root), encode_policy(policy), None),
            ])  # fmt: skip
        except NodeExistsError:
            if not exist_ok:
                raise LogError(f"log {log}: there is one already: choose another name") from None
            await self._context(log)  # Is it a plain one?

    async def delete(self, log: str) -> None:
        """Delete a log with all that it holds, at once; a deletion that was cut off is finished.

        Raises:
            NoSuchLogError: There is no log of this name.
            LogError: A writer of it is alive.
            MetadataError: ZooKeeper cannot be asked; call it again.

        """
        await delete_log(self._client, log, self._root)

    async def rename(self, log: str, new_name: str) -> None:
        """Give a log another name. Who asks for the former name hears the new one.

        Raises:
            NoSuchLogError: There is no log of this name.
            LogError: A writer of it is alive, or the new name is taken.
            MetadataError: ZooKeeper cannot be asked; call it again.

        """
        _check_name(new_name)
        await rename_log(self._client.store, log, new_name, self._root, by=self._name, at_ms=self._clock_ms())

    async def list(self, prefix: str = "") -> list[str]:
        """Return the names of all logs that begin so, sorted; those of state machines too.

        Raises:
            MetadataError: ZooKeeper cannot be asked.

        """
        try:
            names = await self._client.store.children(f"{self._root}/logs")
        except NoNodeError:
            return []
        return [name for name in names if name.startswith(prefix)]

    async def watch(self, prefix: str = "") -> AsyncGenerator[LogNameChange, None]:
        """Yield which names that begin so are there, then each one that comes or goes.

        What comes and goes between two looks is not told: it is told how it is now.

        Raises:
            MetadataError: ZooKeeper cannot be asked.

        """
        store, root = self._client.store, f"{self._root}/logs"
        await ensure_node(store, root)
        known: set[str] = set()
        while True:
            changed = asyncio.Event()
            now = {name for name in await store.children(root, watch=changed.set) if name.startswith(prefix)}
            for name in sorted(known ^ now):
                yield LogNameChange(name, name in now)
            known = now
            try:
                async with asyncio.timeout(_WATCH_LOOK_S):
                    await changed.wait()
            except TimeoutError:
                continue

    async def info(self, log: str) -> LogInfo:
        """Return what is known of a log without reading it.

        Raises:
            NoSuchLogError: There is no log of this name.
            MetadataError: ZooKeeper cannot be asked.

        """
        store = self._client.store
        chain, _ = await ChainStore(store, log, self._root).read()
        policy, _ = await read_policy(store, chain.log_id, self._root)
        closed = [ledger.closed for ledger in chain.ledgers if ledger.closed is not None]
        return LogInfo(
            log,
            chain.log_id,
            chain.ledgers[0].first_revision if chain.ledgers else 0,
            closed[-1].last_revision if closed else trimmed_revision(chain),
            len(chain.ledgers),
            sum(end.length for end in closed),
            chain.leader_epoch,
            "" if chain.leader is None else chain.leader.replica_id,
            bool(await Discovery(store, log, self._root).members()),
            chain.key_id,
            policy,
            tuple(await LogConsumers(store, chain.log_id, self._root).present()),
        )

    async def retain(
        self, log: str, *, retention_s: float | None, retention_bytes: int | None, until_read: bool = False
    ) -> None:
        """Change what a log keeps; see `create`.

        Raises:
            NoSuchLogError: There is no log of this name.
            MetadataError: ZooKeeper cannot be asked; it may be changed.

        """
        context, _ = await self._context(log)

        def other(policy: LogPolicy) -> LogPolicy:
            retention_ms = None if retention_s is None else int(retention_s * 1000)
            return LogPolicy(retention_ms, retention_bytes, until_read, policy.truncated)

        await change_policy(self._client.store, context.log_id, self._root, other)

    async def _context(self, log: str) -> tuple[LogContext, LogChain]:
        """Return the context and the chain of a plain log.

        Raises:
            NoSuchLogError: There is no log of this name.
            PlainLogError: It is that of a state machine.

        """
        chains = ChainStore(self._client.store, log, self._root)
        try:
            chain, _ = await chains.read()
        except NoSuchLogError as error:
            raise type(error)(f"{error}; rsm log create {log}, or Logs.create, makes one") from error
        incarnation = f"{self._rng.getrandbits(128):032x}"
        context = LogContext(
            self._client,
            log,
            chain.log_id,
            me=Leadership(f"{self._name}-{incarnation[:8]}", incarnation),
            settings=self.settings,
            clock_ms=self._clock_ms,
            rng=self._rng,
        )
        await self._check_kind(context, chain)
        return context, chain

    async def _check_kind(self, context: LogContext, chain: LogChain) -> None:
        """Refuse the log of a state machine: a writer would depose its leader.

        Raises:
            PlainLogError: It is one.

        """
        _, version = await read_policy(self._client.store, chain.log_id, self._root)
        described = await _machine_name(context)
        if described == PLAIN_LOG.name or (not described and version is not None):
            return
        kind = f"of machine {described}" if described else "of nobody knows which machine: it has no description yet"
        raise PlainLogError(
            f"log {context.log}: it is the log {kind}, not one that was made to be appended to: choose another name"
        )


async def _machine_name(context: LogContext) -> str:
    """Return what machine a log says that it is of, where it begins now; "" = it does not say."""
    while True:
        chain, _ = await context.chains.read()
        try:
            return await _described_at(context, chain) if chain.ledgers else ""
        except MissingLogError:
            continue  # That ledger has been trimmed meanwhile.


async def _described_at(context: LogContext, chain: LogChain) -> str:
    """Return what machine the first ledger of a chain is of; "" = it does not say.

    Raises:
        MissingLogError: It has left the log.

    """
    first, settings = chain.ledgers[0], context.settings
    reader = LogReader(
        context.client,
        context.chains,
        password=settings.ledger_password,
        keys=settings.log_keys,
        position=LogPosition(first.ledger_id, NO_ENTRY),
        revision=first.first_revision - 1,
        entries_max=_DESCRIBED_WITHIN,
    )
    try:
        for entry in await reader.read():
            for record in decode_records(body_of(entry.payload)):
                if record.type == KernelRecord.MACHINE_DESCRIBED:
                    return decode_description(record.fields[0]).name
    finally:
        await reader.close()
    return ""


def _check_name(log: str) -> None:
    if not log or len(log) > _NAME_MAX or "/" in log or log in {".", ".."} or not log.isprintable():
        raise LogError(
            f"{log[:_NAME_MAX]!r} is no name of a log: it needs 1 to {_NAME_MAX} printable characters without a slash"
        )


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
