"""Answers of transactions: their operations done again, on the map as it was before.

The log tells which way a transaction went, and nothing of what it read: that is in the history of the map, on every
replica that has applied it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rsm_spark.core.records import pack
from rsm_spark.map.commands import CompareRange
from rsm_spark.map.etcd.etcd_pb2 import (
    DeleteRangeRequest,
    DeleteRangeResponse,
    PutRequest,
    PutResponse,
    RangeRequest,
    RangeResponse,
    RequestOp,
    ResponseHeader,
    ResponseOp,
    TxnRequest,
    TxnResponse,
)
from rsm_spark.map.etcd.ranges import answer_range, key_value
from rsm_spark.map.etcd.requests import Span, compare_of, holds, span_of
from rsm_spark.map.etcd.view import KeyShown, MapView
from rsm_spark.map.nested import relates
from rsm_spark.map.rows import MapEntry


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

    def answer(self, request: TxnRequest, taken: Sequence[bool]) -> TxnResponse:
        """Return the answer; the header of what is inside names the map as it is then, those of inner ones nothing."""
        return self._answer(request, iter(taken))

    def _answer(self, request: TxnRequest, taken: Iterator[bool]) -> TxnResponse:
        succeeded = next(taken)
        response = TxnResponse(header=ResponseHeader(), succeeded=succeeded)
        for operation in request.success if succeeded else request.failure:
            response.responses.append(self._run(operation, taken))
        return response

    def _run(self, operation: RequestOp, taken: Iterator[bool]) -> ResponseOp:
        match operation.WhichOneof("request"):
            case "request_range":
                found = self.range(operation.request_range)
                found.header.CopyFrom(self._header())
                return ResponseOp(response_range=found)
            case "request_put":
                put = self.put(operation.request_put)
                put.header.CopyFrom(self._header())
                return ResponseOp(response_put=put)
            case "request_delete_range":
                deleted = self.delete(operation.request_delete_range)
                deleted.header.CopyFrom(self._header())
                return ResponseOp(response_delete_range=deleted)
        return ResponseOp(response_txn=self._answer(operation.request_txn, taken))

    def _header(self) -> ResponseHeader:
        if self._view is None or self._has_changed:
            return ResponseHeader(revision=self._revision)
        return ResponseHeader(revision=self._view.revision)

    def range(self, request: RangeRequest) -> RangeResponse:
        """Answer a read as what came before has left the keys."""
        rows = list(self._rows(span_of(request.key, request.range_end)))
        return answer_range(request, rows, len(rows))

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
        rows = [row for row in self._view.rows(span) if row.key not in written]
        rows += [row for row in written.values() if row is not None]
        yield from sorted(rows, key=lambda row: row.key)


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
