"""Reading of the headers with which the calls of a connection begin: each block may change what later ones mean. No IO.

hpack's decoder reads any block. But nearly all blocks of a caller are the same, or differ by a time limit alone: those
are read here, by the decoder's own table, in a fraction of the time.
"""

from __future__ import annotations

import logging
from typing import Final

import hpack
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable
from msgspec.structs import replace

from rsm_spark.transport.http2_heads import RpcHead, head_of, timeout_of

_BLOCKS_KEPT: Final = 256
_HEADS_KEPT: Final = 16
_HEAD_BYTES_KEPT: Final = 4 * 1024
"""Size of the fields of a head that is kept, at most; all of a connection have 64 KiB."""
_FIELDS_MAX: Final = 64
_FIELD_BYTES: Final = 32
"""Size of a field beside its text (RFC 7541, 4.1)."""
_INDEXED, _KEPT, _MANY, _NAME_MANY = 0x80, 0x40, 0x7F, 0x3F
_STATIC: Final = HeaderTable.STATIC_TABLE
_TIMEOUT: Final = b"grpc-timeout"

_Part = int | tuple[int, bytes]

logging.getLogger("hpack").setLevel(logging.WARNING)  # Below it the library writes every header down, tokens too.


class HeadReader:
    """See the module.

    Args:
        bytes_max: Of a block's fields.

    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._decoder = hpack.Decoder(max_header_list_size=bytes_max)
        self._table = self._decoder.header_table
        # Blocks that name entries of the decoder's table alone, and what they say as long as that stays as it is.
        self._blocks: dict[bytes, RpcHead] = {}
        # What fields say, without a time limit, wherever in the table they stand.
        self._heads: dict[tuple[tuple[bytes, bytes], ...], RpcHead] = {}

    def read(self, block: bytes) -> RpcHead:
        """Return what a block says; blocks are read in the order in which they come.

        Raises:
            HPACKError: It cannot be read; the connection is of no more use.
            UnicodeDecodeError: A name or the path is no text; the same.

        """
        found = self._blocks.get(block)
        if found is not None:
            return found
        parts = _parts_of(block)
        if parts is None:
            self._blocks.clear()  # It may have changed the table.
            return head_of(self._decoder.decode(block, raw=True))
        head = self._head(parts)
        if not all(type(part) is int for part in parts):
            self._blocks.clear()
        elif len(self._blocks) < _BLOCKS_KEPT:
            self._blocks[block] = head
        return head

    def _head(self, parts: list[_Part]) -> RpcHead:
        """Return what parts say, and keep in the table what they tell to be kept."""
        fields: list[tuple[bytes, bytes]] = []
        timeout = b""
        size = 0
        for part in parts:
            if isinstance(part, int):
                name, value = self._entry(part)
            else:
                index, coded = part
                name = self._entry(index)[0]
                value = decode_huffman(coded[1:]) if coded[0] & _INDEXED else coded[1:]
                self._table.add(name, value)
            size += len(name) + len(value) + _FIELD_BYTES
            if name == _TIMEOUT:
                timeout = value
            else:
                fields.append((name, value))
        if size > self._bytes_max:
            raise hpack.OversizedHeaderListError(f"fields of {size} bytes: {self._bytes_max} are allowed")
        key = tuple(fields)
        head = self._heads.get(key)
        if head is None:
            head = head_of(fields)
            if size <= _HEAD_BYTES_KEPT:
                if len(self._heads) >= _HEADS_KEPT:
                    self._heads.clear()
                self._heads[key] = head
        return replace(head, timeout_s=timeout_of(timeout)) if timeout else head

    def _entry(self, index: int) -> tuple[bytes, bytes]:
        """Return an entry of the table; those that every connection has come first, from 1 on."""
        return _STATIC[index - 1] if index <= len(_STATIC) else self._table.get_by_index(index)


def _parts_of(block: bytes) -> list[_Part] | None:
    """Return the fields of a block: numbers of entries, and (number, length and text) of those that are to be kept.

    None = it has others, or long ones. Nothing has been changed then.
    """
    parts: list[_Part] = []
    place, end = 0, len(block)
    while place < end:
        first = block[place]
        place += 1
        most = _MANY if first & _INDEXED else _NAME_MANY
        index = first & most
        if first < _KEPT or not index:
            return None
        if index == most:  # A second byte goes on.
            if place == end or block[place] & _INDEXED:
                return None
            index += block[place]
            place += 1
        if first & _INDEXED:
            parts.append(index)
            continue
        if place == end or block[place] & _MANY == _MANY:
            return None
        begin, place = place, place + 1 + (block[place] & _MANY)
        if place > end:
            return None
        parts.append((index, block[begin:place]))
    return parts if len(parts) <= _FIELDS_MAX else None
