"""Where readers at a gateway begin, and how many places a reader of partitions has."""

from __future__ import annotations

import pytest

from ledger.http.pools import Holder, Pool
from ledger.http.problems import HttpProblem
from rsm_spark.gateway.opened_readers import ReadingSlots, parse_start

_ANN, _EVE = Holder("ann", None), Holder("eve", None)


def test_a_start_is_a_word_a_position_or_a_place_in_each_partition() -> None:
    assert (parse_start("begin"), parse_start("end")) == ("begin", "end")
    assert (parse_start("0"), parse_start("17")) == (1, 17)
    assert parse_start("0:17,3:4") == {0: 17, 3: 4}


@pytest.mark.parametrize("text", ["", "x", "-1", "1" * 17, "0:17,0:4", "1:2:3", "0:1\r\n", "²"])
def test_what_is_no_start_is_refused(text: str) -> None:
    with pytest.raises(HttpProblem) as caught:
        parse_start(text)
    assert (caught.value.status, caught.value.reason) == (400, "invalid")


def test_a_reader_of_many_partitions_has_places_for_their_memory_and_gives_them_back() -> None:
    streams = Pool(100, 10, 100)
    with ReadingSlots(streams, _ANN) as seats:
        assert streams.held == 1
        seats.fit(4)
        assert streams.held == 1
        seats.fit(33)
        assert streams.held == 9
        seats.fit(2)  # What is taken is kept.
        with pytest.raises(HttpProblem) as caught:
            seats.fit(41)
        assert caught.value.status == 429
        assert streams.held == 9
        with ReadingSlots(streams, _EVE):
            assert streams.held == 10, "the others' part is theirs"
    assert streams.held == 0


def test_no_place_is_taken_where_all_are_held() -> None:
    streams = Pool(1, 1, 1)
    with ReadingSlots(streams, _ANN), pytest.raises(HttpProblem) as caught, ReadingSlots(streams, _EVE):
        pass
    assert caught.value.status == 503
    assert streams.held == 0
