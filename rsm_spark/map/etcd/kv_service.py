"""etcd's KV service: reads, writes, transactions, compaction."""

from __future__ import annotations

from itertools import islice

import grpc
from crc32c import crc32c

from rsm_spark.map import commands as c
from rsm_spark.map.etcd import errors as e
from rsm_spark.map.etcd.backend import EtcdBackend
from rsm_spark.map.etcd.caller import EtcdCaller
from rsm_spark.map.etcd.etcd_pb2 import (
    CompactionRequest,
    CompactionResponse,
    DeleteRangeRequest,
    DeleteRangeResponse,
    PutRequest,
    PutResponse,
    RangeRequest,
    RangeResponse,
    TxnRequest,
    TxnResponse,
)
from rsm_spark.map.etcd.old_reads import OldReads
from rsm_spark.map.etcd.ranges import (
    ANSWER_BYTES_MAX,
    SORTED_KEYS_MAX,
    answer_range,
    is_as_kept,
    is_plain,
    key_value,
    range_text,
    rows_wanted,
)
from rsm_spark.map.etcd.replay import TxnReplay
from rsm_spark.map.etcd.requests import (
    Span,
    asks_for_old,
    branch_of,
    check_delete,
    check_put,
    check_range,
    check_txn,
    delete_of,
    is_read_only,
    reads_of,
    span_of,
    write_of,
)
from rsm_spark.map.etcd.view import KeyShown, MapView
from rsm_spark.transport.caller_turns import CallerTurns

_STEP_KEYS = 2_000
"""Keys that are looked at in one go: others of the event loop have their turn in between."""
_TXN_KEYS_MAX = 10_000
"""Keys that the reads of one transaction look at: it is answered in one go."""


class EtcdKvService:
    """See the module.

    Args:
        backend: The map.

    Attributes:
        turns: Of callers, at reading the map.
        olds: Reads what the history does not remember; None = nobody does.

    """

    def __init__(self, backend: EtcdBackend) -> None:
        self._backend = backend
        self.turns = CallerTurns()
        self.olds = None if backend.past is None else OldReads(backend.past)

    def close(self) -> None:
        """Give the files of old reads back."""
        if self.olds is not None:
            self.olds.close()

    # ---- reads

    async def range(self, request: RangeRequest, caller: EtcdCaller) -> RangeResponse:
        """Answer a read.

        Raises:
            EtcdError: See docs/etcd.md.
            RsmError: The leader cannot be asked.

        """
        return RangeResponse.FromString(await self.range_text(request, caller))

    async def range_text(self, request: RangeRequest, caller: EtcdCaller) -> bytes:
        """Answer a read in bytes; see `range`."""
        check_range(request)
        span = span_of(request.key, request.range_end)
        caller.check_read(span)
        if not request.serializable:
            await self._backend.linearizable()
        revision = request.revision if request.revision > 0 else self._backend.revision
        try:
            shown = await self._shown(request, span, revision, caller.owner)
        except e.EtcdError as error:
            is_old = request.revision > 0 and self._backend.is_forgotten(revision)
            if is_old and self.olds is not None and error.code is grpc.StatusCode.OUT_OF_RANGE:
                response = await self.olds.answer(request, span, revision, caller.owner)
                return self._backend.header_text() + response.SerializeToString()
            if request.revision > 0 or error.code is not grpc.StatusCode.OUT_OF_RANGE:
                raise
            # Nobody has asked for that revision: this replica was built anew meanwhile, and the next answer is well.
            raise e.unavailable(e.NO_LEADER) from None
        # Who has asked for no revision goes on behind the one that is shown: with a watch, or with the next page.
        return self._backend.header_text(None if request.revision > 0 else revision) + shown

    async def _shown(self, request: RangeRequest, span: Span, revision: int, owner: str) -> bytes:
        """Return the answer without its header."""
        is_one = span[1] == span[0] + b"\0"  # No work that others would have to wait for.
        if is_as_kept(request):
            texts: list[bytes] = []
            if is_one:
                self._backend.view(revision).texts(span, 1, texts)
                return range_text(request, texts, len(texts))
            return range_text(request, texts, await self._texts(request, span, revision, owner, texts))
        if is_one:
            found = self._backend.view(revision).get(span[0])
            shown = [] if found is None else [found]
            return answer_range(request, shown, len(shown)).SerializeToString()
        rows: list[KeyShown] = []
        if not request.count_only:
            rows = await self.rows(request, span, revision, owner)
        async with self.turns.of(owner):
            return answer_range(request, rows, self._backend.view(revision).count(span)).SerializeToString()

    async def _texts(self, request: RangeRequest, span: Span, revision: int, owner: str, texts: list[bytes]) -> int:
        """Add what is told of the keys of a range, some at a time, all of one revision; return how many keys it has."""
        count = size = 0
        wanted = rows_wanted(request)
        start: bytes | None = span[0]
        while start is not None and size <= ANSWER_BYTES_MAX:
            async with self.turns.of(owner):
                view = self._backend.view(revision)
                if not texts:
                    count = view.count(span)
                begin = len(texts)
                limit = _STEP_KEYS if wanted is None else min(_STEP_KEYS, wanted - begin)
                start = view.texts((start, span[1]), limit, texts)
                size += sum(map(len, islice(texts, begin, None)))
                if len(texts) == wanted:
                    break
        return count

    async def rows(self, request: RangeRequest, span: Span, revision: int, owner: str) -> list[KeyShown]:
        """Return the rows of a range, as far as they are wanted, some at a time; all of one revision.

        Raises:
            EtcdError: The revision is forgotten.

        """
        rows: list[KeyShown] = []
        wanted = rows_wanted(request)
        start: bytes | None = span[0]
        while start is not None and not _is_too_much(request, rows):
            async with self.turns.of(owner):
                start = self._step((start, span[1]), revision, wanted, rows)
        return rows

    async def hash(self, revision: int, owner: str) -> int:
        """Return a checksum of all keys at a revision, as they are shown: the same on every replica.

        Raises:
            EtcdError: The revision is forgotten, compacted, or has not come yet.

        """
        found = 0
        start: bytes | None = b"\0"
        while start is not None:
            rows: list[KeyShown] = []
            async with self.turns.of(owner):
                start = self._step((start, None), revision, None, rows)
                for row in rows:
                    found = crc32c(key_value(row).SerializeToString(deterministic=True), found)
        return found

    def _step(self, span: Span, revision: int, wanted: int | None, rows: list[KeyShown]) -> bytes | None:
        """Add some rows; return where to go on, or None if there are enough, or no more."""
        for step, row in enumerate(self._backend.view(revision).rows(span)):
            if step == _STEP_KEYS:
                return row.key
            rows.append(row)
            if len(rows) == wanted:
                return None
        return None

    # ---- writes

    async def put(self, request: PutRequest, caller: EtcdCaller) -> PutResponse:
        """Write a key; see `range`."""
        check_put(request)
        branch = c.Branch([], [write_of(request)], [])
        caller.check_command(branch)
        if request.prev_kv:
            caller.check_read(span_of(request.key, b""))
        done = await self._execute(branch, caller)
        response = PutResponse()
        if request.prev_kv:
            response = self._replay(done).put(request)
        response.header.CopyFrom(self._backend.header(done.last))
        return response

    async def delete_range(self, request: DeleteRangeRequest, caller: EtcdCaller) -> DeleteRangeResponse:
        """Remove keys; see `range`."""
        check_delete(request)
        branch = c.Branch([], [delete_of(request)], [])
        caller.check_command(branch)
        done = await self._execute(branch, caller)
        async with self.turns.of(caller.owner):
            response = self._replay(done).delete(request)
        response.header.CopyFrom(self._backend.header(done.last))
        return response

    async def txn(self, request: TxnRequest, caller: EtcdCaller) -> TxnResponse:
        """Carry out a transaction; see `range`."""
        return TxnResponse.FromString(await self.txn_text(request, caller))

    async def txn_text(self, request: TxnRequest, caller: EtcdCaller) -> bytes:
        """Carry out a transaction, and answer in bytes; see `range`."""
        async with self.turns.of(caller.owner):
            branch = self._checked(request, caller)
        if branch is None:
            return await self._read_txn(request, caller)
        done = await self._execute(branch, caller)
        if not asks_for_old(request):
            answer = TxnReplay(None, done.last).text(request, done.taken)
        else:
            async with self.turns.of(caller.owner):
                answer = self._replay(done).text(request, done.taken)
        return self._backend.header_text(done.last) + answer

    def _checked(self, request: TxnRequest, caller: EtcdCaller) -> c.Branch | None:
        """Return the command that a transaction is; None = it only reads."""
        check_txn(request)
        branch = branch_of(request)
        for compare in _compares(branch):
            caller.check_read((compare.start, compare.end))
        for read in reads_of(request):
            caller.check_read(span_of(read.key, read.range_end))
        if is_read_only(request):
            return None
        caller.check_command(branch)
        self._check_reads(request)
        return branch

    async def _read_txn(self, request: TxnRequest, caller: EtcdCaller) -> bytes:
        await self._backend.linearizable()
        async with self.turns.of(caller.owner):
            self._check_reads(request)
            revision = self._backend.revision
            replay = TxnReplay(self._backend.view(revision), revision)
            answer = replay.text(request, replay.taken(request))
        return self._backend.header_text(revision) + answer

    def _check_reads(self, request: TxnRequest) -> None:
        """Refuse a transaction that reads very much before it is carried out: nobody could be told how it went."""
        revision = self._backend.revision
        view = self._backend.view_before(revision)
        count = sum(_looked_at(read, view) for read in reads_of(request))
        compared = (span_of(compare.key, compare.range_end) for compare in request.compare)
        count += sum(view.count(span) for span in compared)
        if count > _TXN_KEYS_MAX:
            raise e.exhausted(
                f"rsm: a transaction reads {_TXN_KEYS_MAX} keys at most, this one {count}: nothing was changed"
            )

    async def _execute(self, branch: c.Branch, caller: EtcdCaller) -> c.Branched:
        reply = await self._backend.execute(branch, caller.owner)
        assert isinstance(reply, c.Branched)
        # Whoever reads here without asking the leader finds what it has written here, as on a member of etcd.
        await self._backend.applied(reply.last)
        return reply

    def _replay(self, done: c.Branched) -> TxnReplay:
        """Return what tells how a transaction went that this replica has applied.

        Raises:
            EtcdError: This replica does not remember the map before it any more: it was carried out all the same.

        """
        try:
            view = self._backend.view_before(done.first - 1)
        except e.EtcdError:
            raise e.unavailable(e.OUTCOME_UNKNOWN) from None
        return TxnReplay(view, done.last)

    async def compact(self, request: CompactionRequest, caller: EtcdCaller) -> CompactionResponse:
        """Forget how the map was below a revision; see `range`."""
        command = c.CompactHistory(request.revision)
        caller.check_command(command)
        done = await self._backend.execute(command, caller.owner)
        assert isinstance(done, c.Branched)
        if request.physical:
            await self._backend.applied(done.last)
        return CompactionResponse(header=self._backend.header(done.last))


def _is_too_much(request: RangeRequest, rows: list[KeyShown]) -> bool:
    """Return whether there are more rows than are answered: the answer says so."""
    if not is_plain(request):
        return len(rows) > SORTED_KEYS_MAX
    return sum(len(row.key) + (0 if request.keys_only else len(row.entry.row)) for row in rows) > ANSWER_BYTES_MAX


def _looked_at(read: RangeRequest, view: MapView) -> int:
    """Return how many keys a read within a transaction looks at, if nothing was written before it."""
    count = view.count(span_of(read.key, read.range_end))
    wanted = rows_wanted(read)
    return count if wanted is None else min(count, wanted)


def _compares(branch: c.Branch) -> list[c.CompareRange]:
    found = list(branch.compares)
    for operation in (*branch.then, *branch.orelse):
        if isinstance(operation, c.Branch):
            found += _compares(operation)
    return found
