from __future__ import annotations

import pytest

from connectors.errors import OptionError
from connectors.spark.options import Bound, BoundKind, Rows, parse_options


def test_defaults_are_those_of_the_kafka_source() -> None:
    stream = parse_options({"log": "orders"}, is_stream=True)
    batch = parse_options({"log": "orders"}, is_stream=False)
    assert stream.starting == {"orders": Bound(BoundKind.LATEST)}
    assert batch.starting == {"orders": Bound(BoundKind.EARLIEST)}
    assert batch.ending == {"orders": Bound(BoundKind.LATEST)}
    assert stream.offsets_per_trigger_max is None
    assert (stream.rows, stream.metadata_uri, stream.rsm_root) == (Rows.RECORDS, None, "/rsm")


def test_names_arrive_in_lower_case_as_spark_hands_them_over() -> None:
    options = parse_options(
        {"log": "orders", "metadatauri": "zk://h/l", "maxoffsetspertrigger": "100", "startingoffsets": "earliest"},
        is_stream=True,
    )
    assert options.metadata_uri == "zk://h/l"
    assert options.offsets_per_trigger_max == 100
    assert options.starting["orders"].kind == BoundKind.EARLIEST


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("startingoffset", "startingOffsets"),
        ("metadata_uri", "metadataUri"),
        ("maxoffsetpertrigger", "maxOffsetsPerTrigger"),
        ("logs", "log"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_right_one(wrong: str, right: str) -> None:
    with pytest.raises(OptionError, match=f"unknown option {wrong}: did you mean {right}\\?"):
        parse_options({"log": "orders", wrong: "x"}, is_stream=True)


def test_an_option_like_no_other_is_refused_with_the_list() -> None:
    with pytest.raises(OptionError, match="unknown option zzzz: known are metadataUri, log"):
        parse_options({"log": "orders", "zzzz": "x"}, is_stream=True)


@pytest.mark.parametrize("options", [{}, {"log": "a", "ledgers": "1"}, {"log": " "}])
def test_exactly_one_of_log_and_ledgers_must_be_given(options: dict[str, str]) -> None:
    with pytest.raises(OptionError, match="exactly one of the options log and ledgers"):
        parse_options(options, is_stream=True)


def test_ledgers_are_sorted_and_read_raw() -> None:
    options = parse_options({"ledgers": "18, 3,18"}, is_stream=True)
    assert options.ledger_ids == (3, 18)
    assert options.streams == ("3", "18")
    assert options.rows == Rows.RAW


@pytest.mark.parametrize("text", ["x", "1,,2", "-1", "1.5", "99999999999999999999"])
def test_a_ledger_id_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="option ledgers is"):
        parse_options({"ledgers": text}, is_stream=True)


def test_records_of_plain_ledgers_are_refused() -> None:
    with pytest.raises(OptionError, match="rows=records needs a log"):
        parse_options({"ledgers": "1", "rows": "records"}, is_stream=True)


def test_relative_start_counts_back_from_the_latest() -> None:
    options = parse_options({"log": "orders", "startingOffsets": "latest-1000"}, is_stream=True)
    assert options.starting == {"orders": Bound(BoundKind.BEFORE_LATEST, count=1000)}


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ('{"orders": {"revision": 7}}', Bound(BoundKind.REVISION, revision=7)),
        ('{"orders": {"ledger": 3, "entry": 4}}', Bound(BoundKind.POSITION, ledger_id=3, entry_id=4)),
        ('{"orders": {"ledger": -1, "entry": 0, "revision": 1}}', Bound(BoundKind.REVISION, revision=1)),
        ('{"orders": "earliest"}', Bound(BoundKind.EARLIEST)),
        ('{"orders": "latest-5"}', Bound(BoundKind.BEFORE_LATEST, count=5)),
    ],
)
def test_json_start_of_a_log(text: str, bound: Bound) -> None:
    options = parse_options({"log": "orders", "startingOffsets": text}, is_stream=True)
    assert options.starting == {"orders": bound}


def test_json_start_of_ledgers() -> None:
    options = parse_options({"ledgers": "17,18", "startingOffsets": '{"17": 5, "18": "latest"}'}, is_stream=True)
    assert options.starting == {
        "17": Bound(BoundKind.POSITION, ledger_id=17, entry_id=5),
        "18": Bound(BoundKind.LATEST),
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("newest", "it may be earliest, latest, latest-1000 or JSON"),
        ("latest-", "it may be earliest, latest, latest-1000 or JSON"),
        ("{", "is no JSON"),
        ('{"order": "earliest"}', "missing orders; not asked for order"),
        ('{"orders": {"entry": 4}}', "write"),
        ('{"orders": {"ledger": 1, "entry": -1}}', "write"),
        ('{"orders": true}', "write"),
    ],
)
def test_a_start_that_means_nothing_is_refused(text: str, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        parse_options({"log": "orders", "startingOffsets": text}, is_stream=True)


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5", ""])
def test_a_limit_that_is_no_count_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="option maxOffsetsPerTrigger is"):
        parse_options({"log": "orders", "maxOffsetsPerTrigger": text}, is_stream=True)


def test_options_of_the_other_kind_of_query_are_refused() -> None:
    with pytest.raises(OptionError, match="endingOffsets only works with spark.read:"):
        parse_options({"log": "orders", "endingOffsets": "latest"}, is_stream=True)
    with pytest.raises(OptionError, match="maxOffsetsPerTrigger only works with spark.readStream:"):
        parse_options({"log": "orders", "maxOffsetsPerTrigger": "5"}, is_stream=False)


def test_a_password_comes_from_one_place() -> None:
    with pytest.raises(OptionError, match="passwordFile and passwordEnv"):
        parse_options({"log": "orders", "passwordFile": "a", "passwordEnv": "B"}, is_stream=True)
