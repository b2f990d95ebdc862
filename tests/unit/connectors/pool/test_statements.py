from __future__ import annotations

import datetime as dt
import decimal
import json

import pytest

pytest.importorskip("pyspark")

from connectors.errors import OptionError
from connectors.pool.settings import check_pool_settings
from connectors.pool.statements import encode_rows

COLUMNS = [{"name": "a", "type": "int"}, {"name": "a", "type": "string"}]


def encoded(rows: list[tuple], limit: int = 10, bytes_max: int = 1_000_000) -> dict:
    text = encode_rows(COLUMNS, iter(rows), limit=limit, bytes_max=bytes_max)
    assert len(text) <= bytes_max
    return json.loads(text)


def test_a_result_has_columns_and_rows_even_if_two_columns_have_one_name() -> None:
    said = encoded([(1, "x"), (2, None)])
    assert said == {"columns": COLUMNS, "rows": [[1, "x"], [2, None]], "row_count": 2, "is_cut": False}


def test_rows_beyond_the_limit_are_left_out_and_the_result_says_so() -> None:
    said = encoded([(1, "x"), (2, "y")], limit=1)
    assert (said["rows"], said["row_count"], said["is_cut"]) == ([[1, "x"]], 1, True)


def test_rows_beyond_the_room_are_left_out_and_the_result_says_so() -> None:
    said = encoded([(number, "x" * 100) for number in range(10)], bytes_max=1_000)
    assert 0 < said["row_count"] < 10
    assert said["is_cut"]


def test_values_that_json_has_no_word_for_are_texts() -> None:
    at = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    values = (at, decimal.Decimal("1.50"), b"\x00\xff", float("nan"), [(1, 2)], {"b": dt.date(2026, 1, 2)})
    assert encoded([values])["rows"] == [["2026-01-02T03:04:05Z", "1.50", "AP8=", None, [[1, 2]], {"b": "2026-01-02"}]]


@pytest.mark.parametrize("setting", ["spark.speculation", "spark.python.worker.killOnIdleTimeout"])
def test_a_setting_that_cannot_go_with_a_pool_is_refused(setting: str) -> None:
    check_pool_settings({setting: "false", "spark.master": "local"})
    with pytest.raises(OptionError, match=f"{setting} is on"):
        check_pool_settings({setting: " TRUE "})
