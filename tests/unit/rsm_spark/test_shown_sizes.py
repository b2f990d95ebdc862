"""Sizes and times as commands tell them: in words to people, as numbers with their unit in the name to programs."""

from __future__ import annotations

import pytest

from rsm_spark.cli.log_consumers import described_consumers, tell_consumer
from rsm_spark.cli.terminal import ago, size_words
from rsm_spark.core.chain import ChainLedger, ClosedEnd, LogChain
from rsm_spark.log.consumers import ConsumerState, RegisteredConsumer


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1.0 KiB"),
        (2_500_005, "2.4 MiB"),
        (3 << 30, "3.0 GiB"),
        (5000 << 40, "5,000.0 TiB"),
    ],
)
def test_a_size_is_told_in_the_largest_unit_that_it_fills(count: int, words: str) -> None:
    assert size_words(count) == words


@pytest.mark.parametrize(("passed_ms", "words"), [(999, "now"), (61_000, "1 min"), (7_200_000, "2 h")])
def test_a_time_is_told_in_one_unit(passed_ms: int, words: str) -> None:
    assert ago(10_000_000, 10_000_000 + passed_ms) == words


def test_what_a_consumer_holds_is_a_number_for_programs_and_words_for_people(
    capsys: pytest.CaptureFixture[str],
) -> None:
    closed = ChainLedger(3, 0, 1, 1, ClosedEnd(9, 20, 1_000, 2_500_005, ""))
    chain = LogChain("0" * 32, 3, 2, None, (closed, ChainLedger(4, 0, 2, 21)))
    consumer = RegisteredConsumer("nightly", ConsumerState(5, "export", hold_ms=3_000))
    (described,) = described_consumers(chain, [consumer], 2_000)
    assert (described["held_bytes"], described["held_until_ms"]) == (2_500_005, 4_000)
    tell_consumer(described)
    said = capsys.readouterr().out
    assert "holds 1 closed ledgers, 2.4 MiB, the oldest until 1970-01-01T00:00:04+00:00 at the latest" in said
