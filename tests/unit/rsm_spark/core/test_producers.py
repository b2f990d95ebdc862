"""Table of a log's producers, as a fold of the log."""

from __future__ import annotations

import pytest

from rsm_spark.core.description_rules import check_description
from rsm_spark.core.evolution import check_evolution
from rsm_spark.core.plain_log import PLAIN_LOG, PRODUCED_LOG
from rsm_spark.core.producers import ProducedRange, ProducerTable
from rsm_spark.errors import CorruptLogError


def test_the_description_may_follow_the_one_without_producers() -> None:
    check_description(PRODUCED_LOG)
    check_evolution(PLAIN_LOG, PRODUCED_LOG)


def test_what_does_not_fit_together_is_no_log() -> None:
    table = ProducerTable()
    with pytest.raises(CorruptLogError, match="which is not known"):
        table.add("p", ProducedRange(1, 1, 9), 0)
    table.open("p", "ann", 0)
    with pytest.raises(CorruptLogError, match="opened twice"):
        table.open("p", "ann", 0)
    with pytest.raises(CorruptLogError, match="which is at 0"):
        table.add("p", ProducedRange(2, 1, 9), 0)
    with pytest.raises(CorruptLogError, match="cannot be read"):
        table.restore(b"\xc1")
