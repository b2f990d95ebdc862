"""Consumers of a log: readers whose registered position keeps what they have not read from being trimmed.

    <root>/consumers/<log id>           what the leader tells before it trims (`rsm_spark.log.trim_notice`)
    <root>/consumers/<log id>/<name>    a consumer: last revision that it has read, and its limits

1. The nodes stand under the log's id: a renamed log keeps them, a fork has none of them.
2. Whoever registers writes its node first, then reads the notice, then the chain. The leader writes the notice first,
   then reads the nodes, then changes the chain. So at least one of the two sees the other.
3. A position only moves forward, but for a registration, which begins anew. Two readers that share a name do not move
   it for each other: each registration has a holder of its own.
4. A node that nobody can read, or that is one too many, holds as much as the leader allows: a newer version may have
   written it.

* `ConsumerError`        an `RsmError`: a wish about consumers that cannot be done
* `NoSuchConsumerError`  a `ConsumerError`: there is none of this name
* `ConsumerTakenError`   a `ConsumerError`: another reader has registered under the name
"""

# Longer than 400 lines: one set of nodes, and all that is written and read there.

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

import msgspec

from ledger.decoding import json_decoder
from ledger.errors import BadVersionError, MetadataDeniedError, NodeExistsError, NoNodeError
from ledger.ports import ANY_VERSION, MetadataStore
from rsm_spark.core.chain import DEFAULT_RSM_ROOT, LogChain
from rsm_spark.core.trimming import HOLD_BYTES, HOLD_MS, ConsumerHold
from rsm_spark.errors import CorruptLogError, RsmError
from rsm_spark.log.chain_store import ChainStore

CONSUMERS_MAX = 1_000
"""Consumers of one log."""

_NAME_MAX = 120
_TEXT_MAX = 500
_NOTE_BYTES_MAX = 4_096
_TRIES = 10
_NOTICE_LOOKS = 300
_NOTICE_PAUSE_S = 0.1
_UNBOUNDED = 2**63 - 1


class ConsumerError(RsmError):
    """A wish about consumers that cannot be done."""


class NoSuchConsumerError(ConsumerError):
    """There is no consumer of this name."""


class ConsumerTakenError(ConsumerError):
    """Another reader has registered under the name meanwhile."""


class ConsumerState(msgspec.Struct, frozen=True):
    """State of a consumer, as its node has it.

    Attributes:
        revision: Last revision that it has read; 0 = none.
        what: What it is, in words: a query, a follower.
        holder: Of this registration: the reader that moves the position; "" = an operator.
        hold_ms: See `ConsumerHold`.
        hold_bytes: See `ConsumerHold`.
        moved_ms: Wall clock of the reader when the position moved.

    """

    revision: int
    what: str
    holder: str = ""
    hold_ms: int = HOLD_MS
    hold_bytes: int = HOLD_BYTES
    moved_ms: int = 0


class TrimNotice(msgspec.Struct, frozen=True):
    """Revision up to which a leader takes the log away, told before it does.

    Attributes:
        epoch: Of the leader.
        revision: Nothing behind it goes; 0 = nothing goes.

    """

    epoch: int = 0
    revision: int = 0


class RegisteredConsumer(msgspec.Struct, frozen=True):
    """Consumer as it stands in the metadata store.

    Attributes:
        name: Unique in the log.
        state: Its position and limits.
        problem: Why its node cannot be read; it holds as much as the leader allows then. "" = it can.

    """

    name: str
    state: ConsumerState
    problem: str = ""

    @property
    def hold(self) -> ConsumerHold:
        """Position and limits, as the leader counts them."""
        state = self.state
        return ConsumerHold(self.name, self.problem or state.what, state.revision, state.hold_ms, state.hold_bytes)


class LogConsumers:
    """Consumers of one log.

    Args:
        store: Session with the metadata store.
        log_id: Of the log, 32 hex digits.
        rsm_root: Where logs live.
        wall_ms: Wall clock, milliseconds since 1970.

    """

    def __init__(
        self,
        store: MetadataStore,
        log_id: str,
        rsm_root: str = DEFAULT_RSM_ROOT,
        *,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._store = store
        self._log_id = log_id
        self._root = rsm_root
        self.path = consumers_path(log_id, rsm_root)
        self._wall_ms = wall_ms

    # ---- for readers

    async def register(
        self,
        log: str,
        name: str,
        revision: int,
        *,
        what: str,
        holder: str = "",
        hold_ms: int = HOLD_MS,
        hold_bytes: int = HOLD_BYTES,
    ) -> int:
        """Hold a log from a position on; what the name held before does not count any more.

        Args:
            log: Name of the log.
            name: Of the consumer.
            revision: Last revision that it has read; 0 = none.
            what: What it is, in words.
            holder: Of this registration; only who names it moves the position.
            hold_ms: See `ConsumerHold`.
            hold_bytes: See `ConsumerHold`.

        Returns:
            The revision behind which all is held: larger than the one that was asked for if the log does not reach back
            so far.

        Raises:
            ConsumerError: The name or a limit is not allowed, or there are too many; or a leader goes on telling that
                it takes the log away, and does not do it.
            NoSuchLogError: The log is gone, or another one has its name.
            MetadataError: The metadata store cannot be asked; the consumer may be registered.

        """
        path = self._checked(name)
        if revision < 0 or hold_ms < 0 or hold_bytes < 0:
            raise ConsumerError(
                f"consumer {name} of log {log}: revision {revision}, {hold_ms} ms and {hold_bytes} bytes: none of them "
                "may be negative"
            )
        state = ConsumerState(revision, what[:_TEXT_MAX], holder, hold_ms, hold_bytes, self._wall_ms())
        await self._write(path, name, state)
        return max(revision, await self._first_held(log, name, revision))

    async def begin(self, log: str, name: str, revision: int, *, what: str) -> None:
        """Hold a log from a position on for a reader to come, unless it is held under this name already.

        Args:
            log: Name of the log.
            name: Of the consumer.
            revision: Last revision that it has read; 0 = none.
            what: What it is, in words.

        Raises:
            ConsumerError, NoSuchLogError, MetadataError: See `register`.

        """
        path = self._checked(name)
        if len(await self._names()) >= CONSUMERS_MAX:
            raise ConsumerError(f"consumer {name}: the log has {CONSUMERS_MAX} consumers already: remove some of them")
        state = ConsumerState(revision, what[:_TEXT_MAX], moved_ms=self._wall_ms())
        try:
            await self._store.create(path, msgspec.json.encode(state), parents=True)
        except NodeExistsError:
            return
        held = await self._first_held(log, name, revision)
        if held > revision:  # What went meanwhile was not read by anybody.
            with contextlib.suppress(ConsumerError):
                await self.advance(name, held)

    async def revision_of(self, name: str, *, watch: Callable[[], None]) -> int | None:
        """Return up to where a consumer has read; None = it is not registered.

        Args:
            name: Of the consumer.
            watch: Called once when that has changed, or the consumer is removed.

        Raises:
            CorruptLogError: Its node does not say.
            MetadataError: The metadata store cannot be asked.

        """
        path = self._checked(name)
        try:
            return _decoded((await self._store.get(path, watch=watch)).value, path).revision
        except NoNodeError:
            return None

    async def advance(self, name: str, revision: int, *, holder: str = "") -> bool:
        """Let go of what a consumer has read.

        Args:
            name: Of the consumer.
            revision: Last revision that it has read.
            holder: Of the registration.

        Returns:
            Whether the position moved; it never moves back.

        Raises:
            ConsumerTakenError: Another reader has registered under the name.
            ConsumerError: The consumer is not registered any more: an operator has removed it, or the log is gone.
            MetadataError: The metadata store cannot be asked; the position may have moved.

        """
        path = self._checked(name)
        for _ in range(_TRIES):
            try:
                value, version = await self._store.get(path)
            except NoNodeError:
                raise ConsumerError(
                    f"consumer {name}: it is not registered any more, so the log is not held for it: an operator has "
                    "removed it, or the log is gone"
                ) from None
            state = _decoded(value, path)
            if state.holder != holder:
                raise ConsumerTakenError(
                    f"consumer {name}: another reader ({state.what}) has registered under this name, so the log is not "
                    "held for this one: give each reader a name of its own"
                )
            if state.revision >= revision:
                return False
            with contextlib.suppress(BadVersionError, NoNodeError):
                await self._store.set(path, msgspec.json.encode(_moved(state, revision, self._wall_ms())), version)
                return True
        raise ConsumerError(f"consumer {name}: its node changed {_TRIES} times while its position was moved: try again")

    async def remove(self, name: str) -> None:
        """Let go of all that a consumer holds.

        Raises:
            NoSuchConsumerError: There is none of this name.
            MetadataError: The metadata store cannot be asked; it may be gone.

        """
        try:
            await self._store.delete(self._checked(name))
        except NoNodeError:
            known = ", ".join(await self._names()) or "none"
            raise NoSuchConsumerError(f"there is no consumer {name} (known: {known[:_TEXT_MAX]})") from None

    # ---- for leader and operators

    async def present(self) -> list[RegisteredConsumer]:
        """Return all consumers, by name.

        Raises:
            MetadataError: The metadata store cannot be asked.

        """
        names = await self._names()
        found = []
        for name in names[:CONSUMERS_MAX]:
            path = f"{self.path}/{name}"
            try:
                found.append(RegisteredConsumer(name, _decoded((await self._store.get(path)).value, path)))
            except NoNodeError:
                continue  # It has just been removed.
            except (CorruptLogError, MetadataDeniedError) as error:
                found.append(RegisteredConsumer(name, _anything(), f"what it has read is not known: {error}"))
        if len(names) > CONSUMERS_MAX:
            text = f"{len(names)} consumers are registered, {CONSUMERS_MAX} are counted"
            found.append(RegisteredConsumer(names[CONSUMERS_MAX], _anything(), text))
        return found

    async def notice(self) -> tuple[TrimNotice, int | None]:
        """Return what a leader has told last, and the version of its node; None = there is no node.

        Raises:
            CorruptLogError: The node does not say.
            MetadataError: The metadata store cannot be asked.

        """
        await self._store.sync(self.path)
        try:
            value, version = await self._store.get(self.path)
        except NoNodeError:
            return TrimNotice(), None
        try:
            return json_decoder(TrimNotice).decode(value or b"{}"), version
        except msgspec.MsgspecError as error:
            raise CorruptLogError(f"{self.path}: it does not say up to where the log is trimmed: {error}") from error

    async def tell(self, notice: TrimNotice, version: int | None) -> None:
        """Tell consumers up to where the log goes; `version` is that of what was told before.

        Raises:
            BadVersionError, NodeExistsError, NoNodeError: Somebody else has told something meanwhile.
            MetadataError: The metadata store cannot be asked; it may be told.

        """
        value = msgspec.json.encode(notice)
        if version is None:
            await self._store.create(self.path, value, parents=True)
        else:
            await self._store.set(self.path, value, version)

    # ---- within

    def _checked(self, name: str) -> str:
        if not name or len(name) > _NAME_MAX or "/" in name or name in {".", ".."} or not name.isprintable():
            raise ConsumerError(
                f"{name[:_NAME_MAX]!r} is no name of a consumer: it needs 1 to {_NAME_MAX} printable characters "
                "without a slash"
            )
        return f"{self.path}/{name}"

    async def _names(self) -> list[str]:
        await self._store.sync(self.path)
        try:
            return await self._store.children(self.path)
        except NoNodeError:
            return []

    async def _write(self, path: str, name: str, state: ConsumerState) -> None:
        value = msgspec.json.encode(state)
        if len(value) > _NOTE_BYTES_MAX:
            raise ConsumerError(f"consumer {name}: {len(value)} bytes to write down, {_NOTE_BYTES_MAX} are allowed")
        for _ in range(_TRIES):
            if await self._store.exists(path) is None:
                if len(await self._names()) >= CONSUMERS_MAX:
                    raise ConsumerError(
                        f"consumer {name}: the log has {CONSUMERS_MAX} consumers already: remove some of them "
                        "(rsm log consumers)"
                    )
                with contextlib.suppress(NodeExistsError, NoNodeError):
                    await self._store.create(path, value, parents=True)
                    return
            else:
                with contextlib.suppress(NoNodeError):
                    await self._store.set(path, value, ANY_VERSION)
                    return
        raise ConsumerError(f"consumer {name}: others added and removed it {_TRIES} times meanwhile: try again")

    async def _first_held(self, log: str, name: str, revision: int) -> int:
        """Return the revision behind which the log is still there, once no leader is about to take more of it."""
        for _ in range(_NOTICE_LOOKS):
            notice, _ = await self.notice()
            gone = trimmed_revision(await self._chain(log))
            if notice.revision <= max(revision, gone):
                return gone
            await asyncio.sleep(_NOTICE_PAUSE_S)
        raise ConsumerError(
            f"consumer {name} of log {log}: a leader has told that it takes the log away up to revision "
            f"{notice.revision}, {revision} was asked for, and for {_NOTICE_LOOKS * _NOTICE_PAUSE_S:g} s it neither "
            "did so nor took it back. Look at rsm status, then try again"
        )

    async def _chain(self, log: str) -> LogChain:
        chain, _ = await ChainStore(self._store, log, self._root).read()
        if chain.log_id != self._log_id:
            raise ConsumerError(f"log {log} was made anew: its id is {chain.log_id}, {self._log_id} was to be held")
        return chain


def consumers_path(log_id: str, rsm_root: str) -> str:
    """Return the parent of a log's consumers."""
    return f"{rsm_root}/consumers/{log_id}"


def trimmed_revision(chain: LogChain) -> int:
    """Return the last revision that a chain does not name any more; 0 = all are there."""
    return chain.ledgers[0].first_revision - 1 if chain.ledgers else 0


def _moved(state: ConsumerState, revision: int, at_ms: int) -> ConsumerState:
    return msgspec.structs.replace(state, revision=revision, moved_ms=at_ms)


def _anything() -> ConsumerState:
    return ConsumerState(0, "", hold_ms=_UNBOUNDED, hold_bytes=_UNBOUNDED)


def _decoded(value: bytes, path: str) -> ConsumerState:
    try:
        if len(value) > _NOTE_BYTES_MAX:
            raise msgspec.ValidationError(f"{len(value)} bytes, {_NOTE_BYTES_MAX} are allowed")
        return json_decoder(ConsumerState).decode(value)
    except msgspec.MsgspecError as error:
        raise CorruptLogError(f"{path}: it does not say what a consumer has read: {error}") from error
