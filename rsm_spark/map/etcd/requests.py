"""Requests for keys: what is wrong with them, and the commands of the map that they are. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from rsm_spark.map import commands as c
from rsm_spark.map.etcd import errors as e
from rsm_spark.map.etcd.etcd_pb2 import (
    Compare,
    DeleteRangeRequest,
    PutRequest,
    RangeRequest,
    RequestOp,
    TxnRequest,
)

OPERATIONS_MAX = 128
"""Comparisons, and operations on each side, of a transaction with those inside it: etcd's own default."""

Span = tuple[bytes, bytes | None]
"""First key, and the end, exclusive; None = behind the last."""

_SORT_ORDERS = frozenset(RangeRequest.SortOrder.values())
_SORT_TARGETS = frozenset(RangeRequest.SortTarget.values())
_TARGETS: dict[int, Literal["value", "revision", "create_revision", "version", "lease"]] = {
    Compare.VERSION: "version",
    Compare.CREATE: "create_revision",
    Compare.MOD: "revision",
    Compare.VALUE: "value",
    Compare.LEASE: "lease",
}
_RELATIONS: dict[int, Literal["=", "!=", "<", ">"]] = {
    Compare.EQUAL: "=",
    Compare.GREATER: ">",
    Compare.LESS: "<",
    Compare.NOT_EQUAL: "!=",
}


def span_of(key: bytes, range_end: bytes) -> Span:
    """Return the keys that a request means: one, those up to an end, or for an end of one zero byte all from it on."""
    if not range_end:
        return key, key + b"\0"
    return key, None if range_end == b"\0" else range_end


def holds(span: Span, key: bytes) -> bool:
    """Return whether a key is one of these."""
    start, end = span
    return key >= start and (end is None or key < end)


def check_range(request: RangeRequest) -> None:
    """Check a read.

    Raises:
        EtcdError: It can never be answered.

    """
    if not request.key:
        raise e.invalid(e.EMPTY_KEY)
    if request.sort_order not in _SORT_ORDERS:
        raise e.invalid(e.INVALID_SORT)
    if request.sort_target not in _SORT_TARGETS:
        raise e.invalid(e.INVALID_SORT)


def check_put(request: PutRequest) -> None:
    """Check a write; see `check_range`."""
    if not request.key:
        raise e.invalid(e.EMPTY_KEY)
    if request.ignore_value and request.value:
        raise e.invalid(e.VALUE_PROVIDED)
    if request.ignore_lease and request.lease:
        raise e.invalid(e.LEASE_PROVIDED)


def check_delete(request: DeleteRangeRequest) -> None:
    """Check a removal; see `check_range`."""
    if not request.key:
        raise e.invalid(e.EMPTY_KEY)


def check_txn(request: TxnRequest, operations_max: int = OPERATIONS_MAX) -> None:
    """Check a transaction: its parts, their number, and that no key is written twice on one way through it."""
    _check_parts(request, operations_max)
    for operations in (request.success, request.failure):
        _check_written(operations)


def _check_parts(request: TxnRequest, operations_max: int) -> None:
    count = max(len(request.compare), len(request.success), len(request.failure))
    if count > operations_max:
        raise e.invalid(e.TOO_MANY_OPERATIONS)
    if any(not compare.key for compare in request.compare):
        raise e.invalid(e.EMPTY_KEY)
    for operation in (*request.success, *request.failure):
        match operation.WhichOneof("request"):
            case "request_range":
                check_range(operation.request_range)
            case "request_put":
                check_put(operation.request_put)
            case "request_delete_range":
                check_delete(operation.request_delete_range)
            case "request_txn":
                _check_parts(operation.request_txn, operations_max - count)
            case _:
                raise e.invalid(e.KEY_NOT_FOUND)


def _check_written(operations: Sequence[RequestOp]) -> tuple[dict[bytes, None], list[Span]]:
    """Return the keys that operations may write, and the ranges that they may remove.

    Raises:
        EtcdError: A key is written twice, or written and removed, on one way through them.

    """
    removed: list[Span] = []
    for operation in operations:
        if operation.WhichOneof("request") == "request_delete_range":
            request = operation.request_delete_range
            # As etcd has it, a removal of all keys from one on is not looked at here: it may follow a write of one.
            removed.append((request.key, request.range_end or request.key + b"\0"))
    written: dict[bytes, None] = {}

    def write(key: bytes) -> None:
        if key in written or any(holds(span, key) for span in removed):
            raise e.invalid(e.DUPLICATE_KEY)

    for inner in _inner(operations):
        sides = [_check_written(side) for side in (inner.success, inner.failure)]
        keys: dict[bytes, None] = {}
        for side, _ in sides:
            for key in side:
                write(key)
            keys |= side
        written |= keys
        for _, spans in sides:
            removed += spans
    for operation in operations:
        if operation.WhichOneof("request") == "request_put":
            write(operation.request_put.key)
            written[operation.request_put.key] = None
    return written, removed


def _inner(operations: Sequence[RequestOp]) -> Iterator[TxnRequest]:
    for operation in operations:
        if operation.WhichOneof("request") == "request_txn":
            yield operation.request_txn


def is_read_only(request: TxnRequest) -> bool:
    """Return whether a transaction writes nothing, whichever way it goes."""
    for operation in (*request.success, *request.failure):
        kind = operation.WhichOneof("request")
        if kind in {"request_put", "request_delete_range"}:
            return False
        if kind == "request_txn" and not is_read_only(operation.request_txn):
            return False
    return True


def asks_for_old(request: TxnRequest) -> bool:
    """Return whether the answer needs more than which way it went: rows, or how many keys were removed."""
    for operation in (*request.success, *request.failure):
        match operation.WhichOneof("request"):
            case "request_put":
                if operation.request_put.prev_kv:
                    return True
            case "request_txn":
                if asks_for_old(operation.request_txn):
                    return True
            case _:
                return True
    return False


def reads_of(request: TxnRequest) -> Iterator[RangeRequest]:
    """Yield what a transaction may read, comparisons and old rows aside."""
    for operation in (*request.success, *request.failure):
        kind = operation.WhichOneof("request")
        if kind == "request_range":
            yield operation.request_range
        elif kind == "request_txn":
            yield from reads_of(operation.request_txn)


def write_of(request: PutRequest) -> c.WriteKey:
    """Return the operation of the map that a write is."""
    value = None if request.ignore_value else request.value
    return c.WriteKey(request.key, value, None if request.ignore_lease else request.lease)


def delete_of(request: DeleteRangeRequest) -> c.DeleteRange:
    return c.DeleteRange(*span_of(request.key, request.range_end))


def branch_of(request: TxnRequest) -> c.Branch:
    """Return the command that a transaction is; what only reads is left out: it is answered from the history."""
    compares = [compare_of(compare) for compare in request.compare]
    return c.Branch(compares, _operations_of(request.success), _operations_of(request.failure))


def _operations_of(operations: Sequence[RequestOp]) -> list[c.WriteKey | c.DeleteRange | c.Branch]:
    found: list[c.WriteKey | c.DeleteRange | c.Branch] = []
    for operation in operations:
        match operation.WhichOneof("request"):
            case "request_put":
                found.append(write_of(operation.request_put))
            case "request_delete_range":
                found.append(delete_of(operation.request_delete_range))
            case "request_txn":
                found.append(branch_of(operation.request_txn))
    return found


def compare_of(compare: Compare) -> c.CompareRange:
    """Return the condition of the map that a comparison is.

    Raises:
        EtcdError: It compares by what nobody knows.

    """
    what, relation = _TARGETS.get(compare.target), _RELATIONS.get(compare.result)
    if what is None or relation is None:
        raise e.invalid(f"rsm: there is no comparison {compare.target} of result {compare.result}")
    operand: int | bytes
    match what:
        case "value":
            operand = compare.value
        case "revision":
            operand = compare.mod_revision
        case "create_revision":
            operand = compare.create_revision
        case "version":
            operand = compare.version
        case "lease":
            operand = compare.lease
    return c.CompareRange(*span_of(compare.key, compare.range_end), what, relation, operand)
