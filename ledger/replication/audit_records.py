"""Records of the auditor's looks at all ledgers, and requests for one now, in the metadata store.

There are two kinds of looks. An *audit* reads the metadata of all ledgers and marks those that name a bookie that is
lost or drained. A *check* asks the bookies what they hold of each ledger, which may take hours. A request is a write
of a node: the node's version, plus one, is the request's number, and a look names the newest one that it answers. So
a request outlives the auditor that heard of it first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from ledger.decoding import json_decoder
from ledger.errors import CorruptMetadataError, NodeExistsError, NoNodeError
from ledger.ports import ANY_VERSION, MetadataStore
from ledger.replication.hints import Hints
from ledger.wire import underreplication as u

AuditKind: TypeAlias = Literal["audit", "check"]
AUDIT_KINDS: Final[tuple[AuditKind, ...]] = ("audit", "check")
_NAMED_MAX: Final = 100
_TELL_S: Final = 2.0


class AuditLook(msgspec.Struct, frozen=True, kw_only=True):
    """One look of an auditor at all ledgers.

    Attributes:
        by: The auditor.
        request: Number of the newest request that it answers; 0 = nobody has ever asked.
        began_ms: When it began, Unix time.
        ended_ms: When it ended; None = it runs, or was broken off.
        ledger_count: Ledgers that there were.
        seen_count: Ledgers that it has looked at so far.
        unread_count: Of these, those whose metadata cannot be read.
        lacking_count: Of these, those that lack copies.
        lacking: The first hundred of them.
        short_count: Of these, those with entries that have fewer copies than an acknowledgement needs; of audits alone.
        unreadable_count: Of these, those with entries that nobody who serves has; of audits alone.
        marked_count: Marks that it made or added to.
        lost: Bookies that are lost, a hundred at most; of audits alone.
        drained: Bookies that are to be drained, a hundred at most; of audits alone.
        silent: Bookies that did not say what they hold of some ledger, a hundred at most; of checks alone.
        covers_open: It looked at what is confirmed in open ledgers, too; of checks alone. Older releases
            do not.

    """

    by: str
    request: int
    began_ms: int
    ended_ms: int | None = None
    ledger_count: int = 0
    seen_count: int = 0
    unread_count: int = 0
    lacking_count: int = 0
    lacking: tuple[int, ...] = ()
    short_count: int = 0
    unreadable_count: int = 0
    marked_count: int = 0
    lost: tuple[str, ...] = ()
    drained: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    covers_open: bool = False

    @property
    def found_nothing(self) -> bool:
        """All that it looked at is as it should be."""
        return not (self.unread_count or self.lacking_count or self.lost or self.silent)


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Record of one kind of look.

    Attributes:
        last: The last one that came to its end; None = there was none yet.
        running: The one under way, as its auditor told last; None = none is. One of an auditor that is gone stays here
            until the next one begins.
        problem: Why the last attempt was put off; "" = it was not.

    """

    last: AuditLook | None = None
    running: AuditLook | None = None
    problem: str = ""


class AuditRecords:
    """The nodes.

    Args:
        store: Where they are.
        root: BookKeeper's root node.

    """

    def __init__(self, store: MetadataStore, root: str) -> None:
        self._store = store
        self._root = root

    async def read(self, kind: AuditKind, hints: Hints | None = None) -> AuditRecord:
        """Return what is known; `hints` tell when that changes.

        Raises:
            CorruptMetadataError: The node is damaged. The next look writes it anew.

        """
        path = u.audit_path(self._root, kind)
        watch = hints.on(path) if hints else None
        if await self._store.exists(path, watch=watch) is None:  # Sees the creation, too.
            return AuditRecord()
        try:
            return json_decoder(AuditRecord).decode((await self._store.get(path)).value)
        except NoNodeError:
            return AuditRecord()
        except msgspec.DecodeError as error:
            raise CorruptMetadataError(f"{path}: what the auditor told cannot be read: {error}") from error

    async def write(self, kind: AuditKind, record: AuditRecord) -> None:
        """Tell of it. The auditor alone does."""
        await self._put(u.audit_path(self._root, kind), msgspec.json.encode(record))

    async def request(self, kind: AuditKind) -> int:
        """Ask for a look now; return the number of the request."""
        return 1 + await self._put(u.audit_request_path(self._root, kind), b"")

    async def requested(self, kind: AuditKind, hints: Hints | None = None) -> int:
        """Return the number of the newest request, 0 if there was none; `hints` tell of the next one."""
        path = u.audit_request_path(self._root, kind)
        version = await self._store.exists(path, watch=hints.on(path) if hints else None)
        return 0 if version is None else version + 1

    async def _put(self, path: str, value: bytes) -> int:
        while True:
            try:
                return await self._store.set(path, value, ANY_VERSION)
            except NoNodeError:
                pass
            try:
                await self._store.create(path, value, parents=True)
            except NodeExistsError:
                continue
            return 0


class LookRecorder:
    """Tells of the looks of one auditor, of one kind, one after the other.

    Args:
        records: Where.
        kind: Of look.
        owner: The auditor.
        wall_ms: Wall clock.

    """

    def __init__(self, records: AuditRecords, kind: AuditKind, owner: str, wall_ms: Callable[[], int]) -> None:
        self._records = records
        self._kind: AuditKind = kind
        self._owner = owner
        self._wall_ms = wall_ms
        self._record: AuditRecord | None = None
        self._look: AuditLook | None = None
        self._request = 0
        self._told_s = 0.0

    async def is_wanted(self, hints: Hints) -> bool:
        """Return whether somebody has asked for a look that none has answered; the next look answers it."""
        self._request = await self._records.requested(self._kind, hints)
        last = (await self._known()).last
        return self._request > (0 if last is None else last.request)

    async def begin(self, **facts: object) -> None:
        """Tell that a look begins; `facts` are fields of it."""
        record = await self._known()
        look = AuditLook(by=self._owner, request=self._request, began_ms=self._wall_ms())
        self._look = msgspec.structs.replace(look, **_bounded(facts))
        await self._tell(AuditRecord(last=record.last, running=self._look))

    async def step(self, seen_count: int, ledger_count: int) -> None:
        """Take note of how far it is; it is told every two seconds."""
        assert self._look is not None
        self._look = msgspec.structs.replace(self._look, seen_count=seen_count, ledger_count=ledger_count)
        if asyncio.get_running_loop().time() - self._told_s >= _TELL_S:
            await self._tell(msgspec.structs.replace(await self._known(), running=self._look))

    async def end(self, lacking: Sequence[int], **facts: object) -> None:
        """Tell what it found.

        Args:
            lacking: Ledgers that lack copies.
            facts: Further fields of the look.

        """
        assert self._look is not None
        look = msgspec.structs.replace(
            self._look,
            ended_ms=self._wall_ms(),
            lacking_count=len(lacking),
            lacking=tuple(lacking[:_NAMED_MAX]),
            **_bounded(facts),
        )
        self._look = None
        await self._tell(AuditRecord(last=look))

    async def put_off(self, problem: str) -> None:
        """Tell why a look did not come to its end."""
        if self._look is not None:
            self._look = None
            await self._tell(AuditRecord(last=(await self._known()).last, problem=problem))

    async def _known(self) -> AuditRecord:
        if self._record is None:
            try:
                self._record = await self._records.read(self._kind)
            except CorruptMetadataError:
                self._record = AuditRecord()
        return self._record

    async def _tell(self, record: AuditRecord) -> None:
        self._record = record
        self._told_s = asyncio.get_running_loop().time()
        await self._records.write(self._kind, record)


def _bounded(facts: dict[str, object]) -> dict[str, object]:
    """Return fields with lists that are not too long for a node."""
    return {name: value[:_NAMED_MAX] if isinstance(value, tuple) else value for name, value in facts.items()}
