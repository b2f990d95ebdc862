"""The znode of a log."""

from __future__ import annotations

import random

import msgspec
import pytest

from rsm_spark.core.chain import (
    CHAIN_BYTES_MAX,
    ChainLedger,
    ChainTooLargeError,
    ClosedEnd,
    Leadership,
    LogChain,
    chain_path,
    check_chain_size,
    decode_chain,
    encode_chain,
    members_path,
    service_path,
)
from rsm_spark.errors import CorruptLogError

CHAIN = LogChain(
    "ab" * 16, 3, 7, Leadership("one", "cd" * 16),
    (ChainLedger(3, 100, 6, 1, ClosedEnd(4, 9, 200, 1000, "ef" * 32)), ChainLedger(5, 300, 7, 10)),
)  # fmt: skip


def test_chain_is_read_back_and_equal_chains_have_equal_bytes() -> None:
    value = encode_chain(CHAIN)
    assert decode_chain(value, log_name="log") == CHAIN
    assert encode_chain(decode_chain(value, log_name="log")) == value


@pytest.mark.parametrize("value", [b"", b"{}", b"\xff", b"[1]", b'{"log_id": 5}'])
def test_node_that_holds_no_chain_is_refused_by_name(value: bytes) -> None:
    with pytest.raises(CorruptLogError, match="log orders: its znode holds no chain"):
        decode_chain(value, log_name="orders")


def test_later_format_asks_for_an_upgrade() -> None:
    with pytest.raises(CorruptLogError, match="upgrade"):
        decode_chain(encode_chain(LogChain("ab" * 16, format=2)), log_name="orders")


def test_field_of_a_later_version_is_passed_over() -> None:
    value = encode_chain(CHAIN)[:-1] + b',"later":1}'
    assert decode_chain(value, log_name="log") == CHAIN


def test_paths_lie_under_the_root_of_logs() -> None:
    assert chain_path("orders") == "/rsm/logs/orders"
    assert service_path("orders", "/x") == "/x/services/orders"
    assert members_path("orders") == "/rsm/services/orders/members"


def test_chain_of_ten_thousand_ledgers_fits_a_node_of_zookeeper() -> None:
    rng = random.Random(1)

    def ledger(index: int) -> ChainLedger:
        revision = 10**11 + index * 10**6
        ms = 1_763_000_000_000 + index * 3_600_000 + rng.randrange(100_000)
        end = ClosedEnd(rng.randrange(10**6), revision + 10**6 - 1, ms, rng.randrange(2**28), rng.randbytes(32).hex())
        return ChainLedger(rng.randrange(2**31), ms, 10**4, revision, end)

    chain = LogChain("ab" * 16, 2**31, 10**4, CHAIN.leader, tuple(ledger(index) for index in range(10_000)))
    value = encode_chain(chain)
    check_chain_size(value, 10_000, CHAIN_BYTES_MAX, log_name="orders")
    assert decode_chain(value, log_name="orders") == chain
    assert encode_chain(decode_chain(value, log_name="orders")) == value


def test_chain_of_a_few_ledgers_can_be_read_by_anybody() -> None:
    chain = LogChain("ab" * 16, ledgers=tuple(ChainLedger(index, 0, 1, 1) for index in range(50)))
    assert msgspec.json.decode(encode_chain(chain))["log_id"] == "ab" * 16


def test_chain_that_has_grown_too_long_is_refused_with_what_to_do() -> None:
    with pytest.raises(ChainTooLargeError, match="log orders: a chain of 100 ledgers has 1,001 bytes, .*--dry-run"):
        check_chain_size(bytes(1_001), 100, 1_000, log_name="orders")


@pytest.mark.parametrize("value", [b"", b"nonsense", b"\x78\x01nonsense"])
def test_bytes_that_are_no_chain_are_told(value: bytes) -> None:
    with pytest.raises(CorruptLogError, match="its znode holds no chain"):
        decode_chain(value, log_name="orders")
