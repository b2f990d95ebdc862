"""The znode of a log."""

from __future__ import annotations

import pytest

from rsm_spark.core.chain import (
    ChainLedger,
    ClosedEnd,
    Leadership,
    LogChain,
    chain_path,
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
