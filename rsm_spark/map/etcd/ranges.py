"""Answers to reads: filters, order, limit, and what of a key is told. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

from rsm_spark.map.etcd import errors as e
from rsm_spark.map.etcd.etcd_pb2 import KeyValue, RangeRequest, RangeResponse
from rsm_spark.map.etcd.key_texts import varint
from rsm_spark.map.etcd.view import KeyShown

ANSWER_BYTES_MAX = 32 * 1024 * 1024
"""Keys and values of one answer."""
SORTED_KEYS_MAX = 100_000
"""Keys that are looked at for an answer in another order, or by revisions: they are sorted in one go."""

_MORE = b"\x18\x01"
_COUNT = b"\x20"
"""Fields of a range's answer: `more` that is true, and `count` before its number."""

_ORDERS: dict[int, Callable[[KeyShown], Any]] = {
    RangeRequest.KEY: attrgetter("key"),
    RangeRequest.VERSION: attrgetter("entry.version"),
    RangeRequest.CREATE: attrgetter("entry.create_revision"),
    RangeRequest.MOD: attrgetter("entry.mod_revision"),
    RangeRequest.VALUE: attrgetter("value"),
}


def key_value(shown: KeyShown, *, keys_only: bool = False) -> KeyValue:
    """Return a key as it is told."""
    entry = shown.entry
    return KeyValue(
        key=shown.key,
        create_revision=entry.create_revision,
        mod_revision=entry.mod_revision,
        version=entry.version,
        value=b"" if keys_only else shown.value,
        lease=shown.lease,
    )


def is_in_key_order(request: RangeRequest) -> bool:
    """Return whether the first keys of the range are looked at, whatever is left out of them."""
    return request.sort_order == RangeRequest.NONE or (
        request.sort_target == RangeRequest.KEY and request.sort_order == RangeRequest.ASCEND
    )


def is_plain(request: RangeRequest) -> bool:
    """Return whether the first keys of the range are the answer, whatever their order: nothing is left out.

    As etcd has it, an order that is not said is that of the target, of the first keys.
    """
    return is_in_key_order(request) and not (
        request.min_mod_revision
        or request.max_mod_revision
        or request.min_create_revision
        or request.max_create_revision
    )


def is_as_kept(request: RangeRequest) -> bool:
    """Return whether the answer is the first keys of the range, in their order, with their values."""
    return (
        request.sort_target == RangeRequest.KEY and is_plain(request) and not (request.keys_only or request.count_only)
    )


def sort_rows(request: RangeRequest, rows: list[KeyShown]) -> None:
    """Bring rows that are in the order of their keys into that of a read."""
    if request.sort_target != RangeRequest.KEY or request.sort_order == RangeRequest.DESCEND:
        # Of keys that are alike the order of the keys decides, in either direction.
        rows.sort(key=_ORDERS[request.sort_target], reverse=request.sort_order == RangeRequest.DESCEND)


def rows_wanted(request: RangeRequest) -> int | None:
    """Return how many keys of the range have to be looked at; None = all."""
    return request.limit + 1 if is_plain(request) and request.limit > 0 else None


def answer_range(request: RangeRequest, rows: list[KeyShown], count: int) -> RangeResponse:
    """Return the answer to a read, without its header.

    Args:
        request: The read.
        rows: Of its range, in order: all, or the first `rows_wanted`.
        count: Keys in the whole range.

    Raises:
        EtcdError: It would be too large.

    """
    response = RangeResponse(count=count)
    if request.count_only:
        return response
    if not is_plain(request):
        if len(rows) > SORTED_KEYS_MAX:
            raise e.exhausted(f"rsm: {SORTED_KEYS_MAX} keys at most are sorted or filtered, the range has {len(rows)}")
        rows = [row for row in rows if _passes(request, row)]
    sort_rows(request, rows)
    if 0 < request.limit < len(rows):
        del rows[request.limit :]
        response.more = True
    if sum(len(row.key) + len(row.entry.row) * (not request.keys_only) for row in rows) > ANSWER_BYTES_MAX:
        raise e.exhausted(f"rsm: the answer would have more than {ANSWER_BYTES_MAX} bytes: ask for parts, by a limit")
    response.kvs.extend(_told(rows, keys_only=request.keys_only))
    return response


def range_text(request: RangeRequest, texts: list[bytes], count: int) -> bytes:
    """Return the answer to a read that is told as it is kept, in bytes and without its header; see `answer_range`.

    Args:
        request: The read.
        texts: Of its keys: all, or the first `rows_wanted`.
        count: Keys in the whole range.

    Raises:
        EtcdError: It would be too large.

    """
    if 0 < request.limit < len(texts):
        del texts[request.limit :]
        texts.append(_MORE)
    if sum(map(len, texts)) > ANSWER_BYTES_MAX:
        raise e.exhausted(f"rsm: the answer would have more than {ANSWER_BYTES_MAX} bytes: ask for parts, by a limit")
    if count:
        texts.append(_COUNT + varint(count))
    return b"".join(texts)


def _told(rows: Iterable[KeyShown], *, keys_only: bool) -> Iterable[KeyValue]:
    return (key_value(row, keys_only=keys_only) for row in rows)


def _passes(request: RangeRequest, row: KeyShown) -> bool:
    entry = row.entry
    return not (
        (request.max_mod_revision and entry.mod_revision > request.max_mod_revision)
        or (request.min_mod_revision and entry.mod_revision < request.min_mod_revision)
        or (request.max_create_revision and entry.create_revision > request.max_create_revision)
        or (request.min_create_revision and entry.create_revision < request.min_create_revision)
    )
