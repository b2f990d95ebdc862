from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import SparkOffsetError
from connectors.source.offsets import (
    LogOffset,
    decode_ledger_offsets,
    decode_log_offsets,
    encode_ledger_offsets,
    encode_log_offsets,
)

NUMBERS = st.integers(0, 2**62)


def test_the_text_of_a_log_offset_is_fixed() -> None:
    assert json.dumps(encode_log_offsets({"orders": LogOffset(3, 7, 1234)})) == (
        '{"version": 1, "log": {"orders": {"ledger": 3, "entry": 7, "revision": 1234}}}'
    )


def test_the_text_of_ledger_offsets_is_ascending_by_number() -> None:
    assert json.dumps(encode_ledger_offsets({18: 0, 100: 2, 3: 5})) == (
        '{"version": 1, "ledgers": {"3": 5, "18": 0, "100": 2}}'
    )


@given(ledger=NUMBERS, entry=NUMBERS, revision=NUMBERS, name=st.text(min_size=1))
def test_a_log_offset_survives_spark(ledger: int, entry: int, revision: int, name: str) -> None:
    offset = LogOffset(ledger, entry, revision)
    text = json.dumps(encode_log_offsets({name: offset}))
    assert decode_log_offsets(json.loads(text)) == {name: offset}
    shuffled = {"log": json.loads(text)["log"], "version": 1}
    assert json.dumps(encode_log_offsets(decode_log_offsets(shuffled))) == text


@given(st.dictionaries(NUMBERS, NUMBERS))
def test_ledger_offsets_survive_spark_in_any_order(next_entries: dict[int, int]) -> None:
    text = json.dumps(encode_ledger_offsets(next_entries))
    backwards = {"version": 1, "ledgers": dict(reversed(json.loads(text)["ledgers"].items()))}
    assert json.dumps(encode_ledger_offsets(decode_ledger_offsets(backwards))) == text


def test_an_offset_of_another_version_is_refused() -> None:
    with pytest.raises(SparkOffsetError, match="version 2, this source reads 1"):
        decode_log_offsets({"version": 2, "log": {}})


@pytest.mark.parametrize(
    "offset",
    [
        {"version": 1, "ledgers": {"1": 1}},
        {"version": 1, "log": {"orders": {"ledger": 1}}},
        {"version": 1, "log": {"orders": {"ledger": 1, "entry": "x", "revision": 1}}},
    ],
)
def test_an_offset_of_something_else_is_refused(offset: dict[str, object]) -> None:
    with pytest.raises(SparkOffsetError):
        decode_log_offsets(offset)
