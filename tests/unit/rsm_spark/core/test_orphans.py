"""Which ledgers a leader may clear away, and each mistake that would delete somebody's log."""

from __future__ import annotations

import pytest

from rsm_spark.core.chain import ChainLedger, LogChain
from rsm_spark.core.orphans import custom_metadata, is_orphan

LOG_ID = "ab" * 16
CHAIN = LogChain(LOG_ID, 7, 5, None, (ChainLedger(7, 0, 4, 1),), deleting=(3,))


def test_ledger_of_a_lower_epoch_that_the_chain_does_not_name_is_an_orphan() -> None:
    assert is_orphan(8, custom_metadata("orders", LOG_ID, 4, 7), CHAIN, 5)


@pytest.mark.parametrize(("ledger_id", "custom"), [
    pytest.param(7, custom_metadata("orders", LOG_ID, 4, -1), id="chained"),
    pytest.param(3, custom_metadata("orders", LOG_ID, 1, -1), id="being deleted already"),
    pytest.param(8, custom_metadata("orders", LOG_ID, 5, 7), id="own: its chain write may still arrive"),
    pytest.param(8, custom_metadata("orders", LOG_ID, 6, 7), id="of a later leader"),
    pytest.param(8, custom_metadata("orders", "cd" * 16, 4, 7), id="of another log of the same name"),
    pytest.param(8, {}, id="of another application"),
    pytest.param(8, {"rsm_log_id": LOG_ID.encode(), "rsm_leader_epoch": b"-1"}, id="of an epoch that cannot be"),
    pytest.param(8, {"rsm_log_id": LOG_ID.encode()}, id="of no epoch"),
])  # fmt: skip
def test_ledger_that_may_be_needed_is_none(ledger_id: int, custom: dict[str, bytes]) -> None:
    assert not is_orphan(ledger_id, custom, CHAIN, 5)
