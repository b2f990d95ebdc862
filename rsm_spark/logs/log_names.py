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
from ledger.errors import NodeExistsError
from ledger.ports import NodeChange
from rsm_spark.core.chain import Leadership, LogChain, chain_path, encode_chain, members_path
from rsm_spark.core.partition_layout import (
    PARTITIONS_MAX,
    check_partition_count,
    layout_path,
    partition_log,
)
from rsm_spark.core.plain_log import PLAIN_LOG, PlainLogError
from rsm_spark.core.records import FORMAT_LEVEL
from rsm_spark.errors import (
    CorruptLogError,
    LogError,
    LogExistsError,
    NoSuchLogError,
    PartitionedLogError,
    RenamedLogError,
)
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.consumers import LogConsumers, RegisteredConsumer, trimmed_revision
from rsm_spark.log.deletion import delete_log, ensure_node
from rsm_spark.log.discovery import Discovery, MemberKeeper
from rsm_spark.log.layout_store import LayoutStore
from rsm_spark.log.log_policy import LogPolicy, change_policy, encode_policy, policy_path, read_policy
from rsm_spark.log.member import Member
from rsm_spark.log.partition_names import check_name, is_partitioned, log_names
from rsm_spark.log.partitioned_deletion import delete_partitioned_log
from rsm_spark.log.renaming import rename_log
from rsm_spark.logs.context import LogContext
from rsm_spark.logs.log_kind import machine_name
from rsm_spark.logs.writer_place import WriterPlace
from rsm_spark.runtime.settings import ReplicaSettings

_WATCH_LOOK_S = 5.0


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
        partitions: int | None = None,
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
            partitions: Make a partitioned log of so many; each keeps what the limits say. None = a log of one piece.
            exist_ok: A log of this name, partitioned or not as this one, may be there already; it stays as it is.

        Raises:
            LogError: The name is none, or taken; or it is a former name of a log (`RenamedLogError`).
            MetadataError: ZooKeeper cannot be asked; the log may be there.

        """
        check_name(log)
        store, log_id = self._client.store, f"{self._rng.getrandbits(128):032x}"
        policy = LogPolicy(
            None if retention_s is None else int(retention_s * 1000), retention_bytes, until_read=until_read
        )
        if partitions is not None:
            await self._create_partitioned(log, partitions, policy, exist_ok=exist_ok)
            return
        path = chain_path(log, self._root)
        for parent in ("logs", "policies", "layouts"):
            await ensure_node(store, f"{self._root}/{parent}")
        if not exist_ok and await store.exists(path) is None:
            await ChainStore(store, log, self._root).explain_absence()
        absent = layout_path(log, self._root)
        try:
            await store.change([
                NodeChange(absent, b"", None),
                NodeChange(absent),
                NodeChange(path, encode_chain(LogChain(log_id)), None),
                NodeChange(policy_path(log_id, self._root), encode_policy(policy), None),
            ])  # fmt: skip
        except NodeExistsError:
            if not exist_ok:
                raise LogExistsError(f"log {log}: there is one already: choose another name") from None
            await self._context(log)  # Is it a plain one?

    async def _create_partitioned(self, log: str, partitions: int, policy: LogPolicy, *, exist_ok: bool) -> None:
        check_partition_count(log, partitions)
        check_name(partition_log(log, PARTITIONS_MAX))
        store, layouts = self._client.store, self._layouts(log)
        if not await is_partitioned(store, log, self._root) and await store.exists(chain_path(log, self._root)) is None:
            await ChainStore(store, log, self._root).explain_absence()
        try:
            await layouts.create(partitions, policy)
        except NodeExistsError:
            if exist_ok and await is_partitioned(store, log, self._root):
                return
            last = partition_log(log, partitions - 1)
            raise LogError(
                f"log {log}: there is a log of this name already, or of one of the names {partition_log(log, 0)} to "
                f"{last}, which its partitions would have: choose another name"
            ) from None

    def _layouts(self, log: str) -> LayoutStore:
        return LayoutStore(self._client.store, log, self._root, rng=self._rng)

    async def delete(self, log: str) -> None:
        """Delete a log with all that it holds, at once; a deletion that was cut off is finished.

        Raises:
            NoSuchLogError: There is no log of this name.
            LogError: A writer of it is alive; or it is a partition of a log that stays.
            MetadataError: ZooKeeper cannot be asked; call it again.

        """
        if await is_partitioned(self._client.store, log, self._root):
            await delete_partitioned_log(self._client, log, self._root, rng=self._rng)
            return
        await delete_log(self._client, log, self._root)

    async def rename(self, log: str, new_name: str) -> None:
        """Give a log another name. Who asks for the former name hears the new one. A partitioned log keeps its name.

        Raises:
            NoSuchLogError: There is no log of this name; `PartitionedLogError` if it is partitioned.
            LogError: A writer of it is alive, or the new name is taken; or it is a partition.
            MetadataError: ZooKeeper cannot be asked; call it again.

        """
        check_name(new_name)
        await rename_log(self._client.store, log, new_name, self._root, by=self._name, at_ms=self._clock_ms())

    async def list(self, prefix: str = "") -> list[str]:
        """Return the names of all logs that begin so, sorted; those of state machines too.

        A partitioned log is named once; its partitions are not.

        Raises:
            MetadataError: ZooKeeper cannot be asked.

        """
        return [name for name in await log_names(self._client.store, self._root) if name.startswith(prefix)]

    async def watch(self, prefix: str = "") -> AsyncGenerator[LogNameChange, None]:
        """Yield which names that begin so are there, then each one that comes or goes.

        What comes and goes between two looks is not told: it is told how it is now.

        Raises:
            MetadataError: ZooKeeper cannot be asked.

        """
        for parent in ("logs", "layouts"):
            await ensure_node(self._client.store, f"{self._root}/{parent}")
        known: set[str] = set()
        while True:
            changed = asyncio.Event()
            now = {
                name
                for name in await log_names(self._client.store, self._root, watch=changed.set)
                if name.startswith(prefix)
            }
            for name in sorted(known ^ now):
                yield LogNameChange(name, name in now)
            known = now
            try:
                async with asyncio.timeout(_WATCH_LOOK_S):
                    await changed.wait()
            except TimeoutError:
                continue

    async def is_partitioned(self, log: str) -> bool:
        """Return whether a name is that of a partitioned log.

        Raises:
            MetadataError: ZooKeeper cannot be asked.

        """
        return await is_partitioned(self._client.store, log, self._root)

    async def info(self, log: str) -> LogInfo:
        """Return what is known of a log without reading it; of a partitioned one `partitions` tells.

        Raises:
            NoSuchLogError: There is no log of this name; `PartitionedLogError` if it is partitioned.
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
        """Change what a log keeps; see `create`. Of a partitioned log, what each of its partitions keeps.

        Raises:
            NoSuchLogError: There is no log of this name.
            MetadataError: ZooKeeper cannot be asked; it may be changed.

        """
        if await is_partitioned(self._client.store, log, self._root):
            layout, _ = await self._layouts(log).read()
            log_ids = layout.log_ids
        else:
            log_ids = ((await self._context(log))[0].log_id,)

        def other(policy: LogPolicy) -> LogPolicy:
            retention_ms = None if retention_s is None else int(retention_s * 1000)
            return LogPolicy(retention_ms, retention_bytes, until_read, policy.truncated)

        for log_id in log_ids:
            await change_policy(self._client.store, log_id, self._root, other)

    async def _is_written(self, log: str) -> bool:
        """Return whether a writer of the log is alive."""
        await self._client.store.sync(members_path(log, self._root))
        return bool(await Discovery(self._client.store, log, self._root).members())

    def _me(self) -> Leadership:
        """Return who a new writer is."""
        incarnation = f"{self._rng.getrandbits(128):032x}"
        return Leadership(f"{self._name}-{incarnation[:8]}", incarnation)

    def _keeper(self, log: str, me: Leadership, place: WriterPlace | None = None) -> MemberKeeper:
        """Return what tells others that a log has a writer, and where they reach it."""
        keys = self.settings.log_keys
        ids = () if keys is None else keys.ids
        member = Member(me.replica_id, me.incarnation, "", format_level=FORMAT_LEVEL, key_ids=ids)
        if place is not None:
            http, is_tls, grpc = place
            member = msgspec.structs.replace(member, http=http, http_is_tls=is_tls, gateway_grpc=grpc)
        return MemberKeeper(self._client.store, log, member, rsm_root=self._root, poll_s=self.settings.poll_s)

    async def _context(self, log: str, log_id: str = "") -> tuple[LogContext, LogChain]:
        """Return the context and the chain of a plain log.

        Args:
            log: Its name.
            log_id: That it must have; "" = any.

        Raises:
            NoSuchLogError: There is no log of this name.
            CorruptLogError: It has another id.
            PlainLogError: It is that of a state machine.

        """
        chains = ChainStore(self._client.store, log, self._root)
        try:
            chain, _ = await chains.read()
        except (RenamedLogError, PartitionedLogError):
            raise
        except NoSuchLogError as error:
            raise NoSuchLogError(f"{error}; rsm log create {log}, or Logs.create, makes one") from error
        if log_id not in ("", chain.log_id):
            raise CorruptLogError(
                f"log {log}: its id is {chain.log_id}, and the layout of the log that it is a partition of names "
                f"{log_id}: one of the two was written by somebody who must not"
            )
        context = LogContext(
            self._client,
            log,
            chain.log_id,
            me=self._me(),
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
        described = await machine_name(context)
        if described == PLAIN_LOG.name or (not described and version is not None):
            return
        kind = f"of machine {described}" if described else "of nobody knows which machine: it has no description yet"
        raise PlainLogError(
            f"log {context.log}: it is the log {kind}, not one that was made to be appended to: choose another name"
        )


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
