"""Payloads come out however the chunks fall."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.errors import UsageError
from ledger.payload_stream import PayloadSplitter, json_line
from ledger.wire.entry import PAYLOAD_BYTES_MAX


def split(stream: bytes, cuts: list[int], *, length_prefixed: bool) -> list[bytes]:
    splitter = PayloadSplitter(length_prefixed=length_prefixed)
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    payloads = [p for a, b in zip(edges, edges[1:], strict=False) for p in splitter.feed(stream[a:b])]
    return payloads + splitter.finish()


cut_lists = st.lists(st.integers(0, 1000), max_size=6)


@given(st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line)), cut_lists)
def test_lines_come_out_whole(lines: list[bytes], cuts: list[int]) -> None:
    assert split(b"".join(line + b"\n" for line in lines), cuts, length_prefixed=False) == lines


@given(st.lists(st.binary(max_size=20)), cut_lists)
def test_length_prefixed_payloads_come_out_whole(payloads: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(len(payload).to_bytes(4, "big") + payload for payload in payloads)
    assert split(stream, cuts, length_prefixed=True) == payloads


def test_a_last_line_without_newline_counts() -> None:
    assert split(b"a\n\nb", [], length_prefixed=False) == [b"a", b"", b"b"]


def test_an_input_that_ends_inside_a_payload_is_an_error() -> None:
    with pytest.raises(UsageError, match="ends inside"):
        split(b"\0\0\0\5abc", [], length_prefixed=True)


def test_a_payload_that_no_entry_can_hold_is_an_error_before_it_is_read() -> None:
    with pytest.raises(UsageError, match=str(PAYLOAD_BYTES_MAX)):
        PayloadSplitter(length_prefixed=True).feed((2**31).to_bytes(4, "big"))
    with pytest.raises(UsageError, match=str(PAYLOAD_BYTES_MAX)):
        PayloadSplitter(length_prefixed=False).feed(bytes(PAYLOAD_BYTES_MAX + 5))


def test_an_entry_is_a_line_of_json_text_or_base64() -> None:
    assert json.loads(json_line(1, 2, "é\n".encode())) == {"ledger_id": 1, "entry_id": 2, "payload": "é\n"}
    assert json.loads(json_line(1, 2, b"\xff")) == {"ledger_id": 1, "entry_id": 2, "payload_base64": "/w=="}
