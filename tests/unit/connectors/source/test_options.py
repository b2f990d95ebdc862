from __future__ import annotations

import re

import pytest

from connectors.errors import OptionError
from connectors.source.bounds import Bound, BoundKind
from connectors.source.options import BadRecords, Rows, TimestampStrategy, parse_options


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
        ("subscribe", "log"),
        ("subscribePattern", "logPattern"),
        ("kafka.bootstrap.servers", "metadataUri"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_right_one(wrong: str, right: str) -> None:
    with pytest.raises(OptionError, match=f"unknown option {re.escape(wrong)}: did you mean {right}\\?"):
        parse_options({"log": "orders", wrong: "x"}, is_stream=True)


def test_an_option_like_no_other_is_refused_with_the_list() -> None:
    with pytest.raises(OptionError, match="unknown option zzzz: known are log, logPattern"):
        parse_options({"log": "orders", "zzzz": "x"}, is_stream=True)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, "none of them is set"),
        ({"log": " "}, "none of them is set"),
        ({"log": "a", "ledgers": "1"}, "set are log and ledgers"),
        ({"log": "a", "logPattern": "a.*"}, "set are log and logPattern"),
    ],
)
def test_exactly_one_of_log_pattern_and_ledgers_must_be_given(options: dict[str, str], found: str) -> None:
    with pytest.raises(OptionError, match=f"exactly one of the options log, logPattern and ledgers: {found}"):
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
        ('{"orders": 7}', Bound(BoundKind.REVISION, revision=7)),
        ('{"orders": 0}', Bound(BoundKind.REVISION, revision=1)),
        ('{"orders": -1}', Bound(BoundKind.LATEST)),
        ('{"orders": -2}', Bound(BoundKind.EARLIEST)),
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
        ("newest", "it may be earliest, latest, latest-1000, snapshot or JSON"),
        ("latest-", "it may be earliest, latest, latest-1000, snapshot or JSON"),
        ("{", "is no JSON"),
        ('{"order": "earliest"}', "missing orders; not asked for order"),
        ('{"orders": {"entry": 4}}', "write"),
        ('{"orders": {"ledger": 1, "entry": -1}}', "write"),
        ('{"orders": true}', "log orders has true: write"),
        ('{"orders": -3}', "-2 for the earliest, -1 for the latest"),
        ('{"orders": 7.5}', "write its next revision"),
        ('{"orders": 1, "orders": 2}', "a key is there twice"),
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


def test_a_plain_password_is_refused_without_being_told() -> None:
    with pytest.raises(OptionError, match="use passwordFile .* or passwordEnv") as caught:
        parse_options({"log": "orders", "Password": "hush"}, is_stream=True)
    assert "hush" not in str(caught.value)


def test_every_option_has_its_field() -> None:
    options = parse_options(
        {
            "log": "orders",
            "zkAuthFile": "/etc/zk",
            "zkTlsFile": "/etc/zk.toml",
            "rows": "kafka",
            "includeHeaders": "True",
            "columns": "key, value",
            "badRecords": "column",
            "lake": "s3://lake",
            "storageoption.aws_region": "eu",
            "failOnDataLoss": "false",
            "maxBytesPerTrigger": "10m",
            "minOffsetsPerTrigger": "7",
            "maxTriggerDelay": "30s",
            "startingOffsetsByTimestampStrategy": "latest",
        },
        is_stream=True,
    )
    assert (options.zk_auth_file, options.zk_tls_file) == ("/etc/zk", "/etc/zk.toml")
    assert (options.rows, options.include_headers) == (Rows.KAFKA, True)
    assert (options.columns, options.bad_records) == (("key", "value"), BadRecords.COLUMN)
    assert (options.lake, options.storage_options) == ("s3://lake", {"aws_region": "eu"})
    assert (options.fail_on_data_loss, options.bytes_per_trigger_max) == (False, 10 * 1024 * 1024)
    assert (options.offsets_per_trigger_min, options.trigger_delay_max_s) == (7, 30.0)
    assert options.timestamp_strategy == TimestampStrategy.LATEST
    assert parse_options({"log": "orders"}, is_stream=True).trigger_delay_max_s == 900.0


def test_a_batch_may_push_filters_down_and_a_table_may_be_chosen() -> None:
    options = parse_options({"log": "orders", "rows": "table", "table": "rows", "pushdown": "true"}, is_stream=False)
    assert (options.rows, options.table, options.pushdown) == (Rows.TABLE, "rows", True)


def test_storage_options_are_not_in_the_text_of_the_options() -> None:
    options = parse_options({"log": "orders", "storageOption.aws_secret_access_key": "hush"}, is_stream=True)
    assert "hush" not in repr(options)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("rows", "json", "it may be raw, records, kafka or table"),
        ("badRecords", "drop", "it may be fail or column"),
        ("failOnDataLoss", "no", "it may be true or false"),
        ("startingOffsetsByTimestampStrategy", "earliest", "it may be error or latest"),
        ("maxBytesPerTrigger", "10x", "a size of at least a byte like 64m or 1g"),
        ("maxBytesPerTrigger", "0", "a size of at least a byte"),
        ("maxTriggerDelay", "15", "a time with its unit like 500ms, 30s or 15m"),
        ("minOffsetsPerTrigger", "0", "a whole number of at least 1"),
        ("columns", "a,,b", "no empty one"),
        ("columns", "a,b,a", "names a more than once"),
        ("includeHeaders", "true", "only works with rows=kafka"),
        ("table", "map", "only works with rows=table"),
        ("logPattern", "(", "no regular expression"),
        ("startingTimestamp", "yesterday", "milliseconds since 1970"),
        ("startingTimestamp", '{"orders": "1"}', "milliseconds since 1970"),
        ("startingOffsets", "snapshot", "it needs option lake"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_what_can(name: str, value: str, said: str) -> None:
    subject = {} if name == "logPattern" else {"log": "orders"}
    with pytest.raises(OptionError, match=said) as caught:
        parse_options({**subject, name: value}, is_stream=True)
    assert name in str(caught.value)


def test_sizes_and_times_have_units() -> None:
    for text, size in (("512", 512), ("1k", 1024), ("64mb", 64 << 20), ("1 GiB", 1 << 30)):
        options = parse_options({"log": "orders", "maxBytesPerTrigger": text}, is_stream=True)
        assert options.bytes_per_trigger_max == size
    for text, seconds in (("500ms", 0.5), ("30s", 30.0), ("2 min", 120.0), ("1h", 3600.0)):
        options = parse_options({"log": "orders", "maxTriggerDelay": text}, is_stream=True)
        assert options.trigger_delay_max_s == seconds


def test_a_minimum_above_the_maximum_is_refused() -> None:
    limits = {"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "9"}
    with pytest.raises(OptionError, match="minOffsetsPerTrigger is 10, maxOffsetsPerTrigger is 9"):
        parse_options({"log": "orders", **limits}, is_stream=True)


def test_a_pattern_has_a_bound_for_all_logs_and_some_for_those_that_json_names() -> None:
    assert parse_options({"logPattern": "o.*"}, is_stream=True).starting == {"": Bound(BoundKind.LATEST)}
    options = parse_options({"logPattern": "o.*", "startingOffsets": '{"orders": 5}'}, is_stream=True)
    assert options.starting == {"": Bound(BoundKind.LATEST), "orders": Bound(BoundKind.REVISION, revision=5)}
    assert (options.log, options.log_pattern, options.streams) == ("", "o.*", ())
    with pytest.raises(OptionError, match="may only name logs that option logPattern matches: not asked for x"):
        parse_options({"logPattern": "o.*", "startingOffsets": '{"x": 5}'}, is_stream=True)


def test_a_time_to_start_at_takes_precedence() -> None:
    at = Bound(BoundKind.TIMESTAMP, timestamp_ms=1_790_000_000_000)
    options = {"log": "orders", "startingOffsets": "latest", "startingTimestamp": "1790000000000"}
    assert parse_options(options, is_stream=True).starting == {"orders": at}
    options = {"log": "orders", "endingTimestamp": '{"orders": 1790000000000}'}
    assert parse_options(options, is_stream=False).ending == {"orders": at}


def test_plain_ledgers_have_neither_times_nor_snapshots() -> None:
    with pytest.raises(OptionError, match="startingTimestamp needs a log: entries of plain ledgers carry no time"):
        parse_options({"ledgers": "1", "startingTimestamp": "5"}, is_stream=True)
    with pytest.raises(OptionError, match="plain ledgers have none"):
        parse_options({"ledgers": "1", "startingOffsets": "snapshot", "lake": "/lake"}, is_stream=True)
    options = parse_options({"ledgers": "1,2", "startingOffsets": '{"1": -2, "2": -1}'}, is_stream=True)
    assert options.starting == {"1": Bound(BoundKind.EARLIEST), "2": Bound(BoundKind.LATEST)}


@pytest.mark.parametrize("text", ["earliest", "snapshot", '{"orders": -2}'])
def test_an_end_that_reads_nothing_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="option endingOffsets is '.*': it may be latest, latest-1000 or JSON"):
        parse_options({"log": "orders", "endingOffsets": text, "lake": "/lake"}, is_stream=False)


def test_a_snapshot_to_start_with_needs_rows() -> None:
    options = {"log": "orders", "startingOffsets": "snapshot", "lake": "/lake"}
    assert parse_options(options, is_stream=True).starting == {"orders": Bound(BoundKind.SNAPSHOT)}
    with pytest.raises(OptionError, match="a snapshot has rows and no entries"):
        parse_options({**options, "rows": "raw"}, is_stream=True)
