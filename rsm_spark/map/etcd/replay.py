"""Answers of transactions: their operations done again, on the map as it was before.

The log tells which way a transaction went, and nothing of what it read: that is in the history of the map, on every
replica that has applied it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice
from operator import attrgetter

from rsm_spark.core.records import pack
from rsm_spark.map.commands import CompareRange
from rsm_spark.map.etcd.etcd_pb2 import (
    DeleteRangeRequest,
    DeleteRangeResponse,
    PutRequest,
    PutResponse,
    RangeRequest,
    RequestOp,
    ResponseHeader,
    TxnRequest,
)
from rsm_spark.map.etcd.key_texts import field_text
from rsm_spark.map.etcd.ranges import answer_range, is_as_kept, key_value, range_text, rows_wanted
from rsm_spark.map.etcd.requests import Span, compare_of, holds, span_of
from rsm_spark.map.etcd.view import KeyShown, MapView
from rsm_spark.map.nested import relates
from rsm_spark.map.rows import MapEntry

_HEADER, _RESPONSES = 1, 3
"""Fields of the answer of a transaction."""
_SUCCEEDED = b"\x10\x01"
"""Another one that is true."""
_RANGE, _PUT, _DELETE, _TXN = 1, 2, 3, 4
"""Fields of the answer of an operation, one of each kind."""


_key_of = attrgetter("key")


class TxnReplay:
    """See the module.

    Args:
        view: The map before the transaction; None = nothing of it is asked for.
        revision: That the keys got which it wrote; of one that only reads: of the map that it sees.

    """

    def __init__(self, view: MapView | None, revision: int) -> None:
        self._view = view
        self._revision = revision
        # What it has made of keys so far; None = gone.
        self._written: dict[bytes, KeyShown | None] = {}
        self._has_changed = False

    def taken(self, request: TxnRequest) -> list[bool]:
        """Return which way a transaction goes, and each inside that it comes to: for one that only reads."""
        found = [all(self._holds(compare_of(compare)) for compare in request.compare)]
        for operation in request.success if found[0] else request.failure:
            if operation.WhichOneof("request") == "request_txn":
                found += self.taken(operation.request_txn)
        return found

    def _holds(self, compare: CompareRange) -> bool:
        assert self._view is not None
        count = 0
        for row in self._view.rows((compare.start, compare.end)):
            count += 1
            if not relates(compare, _compared(compare, row)):
                return False
        return count > 0 or (compare.what != "value" and relates(compare, 0))

    def text(self, request: TxnRequest, taken: Sequence[bool]) -> bytes:
        """Return the answer without its header, in bytes.

        The header of what is inside names the map as it is then, those of inner transactions nothing.
        """
        return self._answer(request, iter(taken))

    def _answer(self, request: TxnRequest, taken: Iterator[bool]) -> bytes:
        succeeded = next(taken)
        parts = [_SUCCEEDED] if succeeded else []
        parts += [
            field_text(_RESPONSES, self._run(operation, taken))
            for operation in (request.success if succeeded else request.failure)
        ]
        return b"".join(parts)

    def _run(self, operation: RequestOp, taken: Iterator[bool]) -> bytes:
        """Return the answer to one operation, as the field of its kind."""
        match operation.WhichOneof("request"):
            case "request_range":
                found = self._range(operation.request_range)
                return field_text(_RANGE, self._header() + found)
            case "request_put":
                put = self.put(operation.request_put).SerializeToString()
                return field_text(_PUT, self._header() + put)
            case "request_delete_range":
                deleted = self.delete(operation.request_delete_range).SerializeToString()
                return field_text(_DELETE, self._header() + deleted)
        return field_text(_TXN, field_text(_HEADER, b"") + self._answer(operation.request_txn, taken))

    def _header(self) -> bytes:
        changed = self._view is None or self._has_changed
        header = ResponseHeader(revision=self._revision if changed or self._view is None else self._view.revision)
        return field_text(_HEADER, header.SerializeToString())

    def _range(self, request: RangeRequest) -> bytes:
        """Answer a read as what came before has left the keys, without its header."""
        span = span_of(request.key, request.range_end)
        view = self._view
        assert view is not None
        wanted = rows_wanted(request)
        if is_as_kept(request) and not any(holds(span, key) for key in self._written):
            texts: list[bytes] = []
            view.texts(span, sys.maxsize if wanted is None else wanted, texts)
            return range_text(request, texts, view.count(span))
        rows = list(islice(self._rows(span), wanted))
        return answer_range(request, rows, self._count(span)).SerializeToString()

    def _count(self, span: Span) -> int:
        assert self._view is not None
        count = self._view.count(span)
        for key, row in self._written.items():
            if holds(span, key):
                count += (row is not None) - (self._view.get(key) is not None)
        return count

    def put(self, request: PutRequest) -> PutResponse:
        """Write a key; answer what it held if that is asked for."""
        response = PutResponse()
        self._has_changed = True
        if self._view is None:
            return response
        old = self._get(request.key)
        if request.prev_kv and old is not None:
            response.prev_kv.CopyFrom(key_value(old))
        value = old.value if request.ignore_value and old is not None else request.value
        lease = old.lease if request.ignore_lease and old is not None else request.lease
        created, version = (self._revision, 1) if old is None else (old.entry.create_revision, old.entry.version + 1)
        entry = MapEntry(pack((value,)), self._revision, created, version, self._revision)
        self._written[request.key] = KeyShown(request.key, entry, lease)
        return response

    def delete(self, request: DeleteRangeRequest) -> DeleteRangeResponse:
        """Remove keys; answer how many, and what they held if that is asked for."""
        rows = list(self._rows(span_of(request.key, request.range_end)))
        response = DeleteRangeResponse(deleted=len(rows))
        if request.prev_kv:
            response.prev_kvs.extend(key_value(row) for row in rows)
        for row in rows:
            self._written[row.key] = None
            self._has_changed = True
        return response

    def _get(self, key: bytes) -> KeyShown | None:
        if key in self._written:
            return self._written[key]
        assert self._view is not None
        return self._view.get(key)

    def _rows(self, span: Span) -> Iterator[KeyShown]:
        assert self._view is not None
        written = {key: row for key, row in self._written.items() if holds(span, key)}
        if not written:
            yield from self._view.rows(span)
            return
        kept = (row for row in self._view.rows(span) if row.key not in written)
        added = sorted((row for row in written.values() if row is not None), key=_key_of)
        yield from merge(kept, added, key=_key_of)


def _compared(compare: CompareRange, row: KeyShown) -> int | bytes:
    match compare.what:
        case "value":
            return row.value
        case "revision":
            return row.entry.mod_revision
        case "create_revision":
            return row.entry.create_revision
        case "version":
            return row.entry.version
        case "lease":
            return row.lease
