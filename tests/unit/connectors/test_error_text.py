"""What is left of an error of Spark's when the traces are gone."""

from __future__ import annotations

import pytest

from connectors.error_text import own_words, spoken_error, store_complaint
from connectors.errors import StartGoneError
from rsm_spark.errors import SnapshotError

_STREAM = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: \
[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when running Python streaming data source reader: \
Traceback (most recent call last):
  File "/site/pyspark/sql/streaming/python_streaming_source_runner.py", line 10, in main
    result = latest_offset_func(reader, infile, outfile)
  File "/site/connectors/source/subjects.py", line 77, in check
    raise StartGoneError(
{raised}
 SQLSTATE: 38000
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.pythonStreamingDataSourceRuntimeError
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""


def test_an_error_of_ours_speaks_for_all_that_wraps_it() -> None:
    error = RuntimeError(_STREAM.replace("{raised}", "connectors.errors.StartGoneError: log orders begins at 700"))
    assert spoken_error(error) == own_words(error) == "log orders begins at 700"


def test_an_error_without_a_trace_stands_in_the_line_of_those_that_wrap_it() -> None:
    said = (
        "org.apache.spark.SparkException: Job aborted due to stage failure: Lost task 0.0 in stage 1.0 (TID 1): "
        "org.apache.spark.api.python.PythonException: ledger.errors.QuorumLostError: ledger 7: nobody answers\n"
        "\n\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)\n\nDriver stacktrace:\n"
    )
    assert own_words(RuntimeError(said)) == "ledger 7: nobody answers"
    assert own_words(RuntimeError(said.replace("ledger.errors.", ""))) is None


def test_a_message_of_two_lines_is_kept_whole() -> None:
    raised = "connectors.errors.StartGoneError: log orders begins at 700\n  start at earliest, or take a snapshot"
    error = RuntimeError(_STREAM.replace("\n SQLSTATE: 38000", "").replace("{raised}", raised))
    assert spoken_error(error) == "log orders begins at 700\n  start at earliest, or take a snapshot"


def test_the_last_of_our_errors_is_the_one_that_was_raised_from_the_others() -> None:
    chained = (
        "ledger.errors.NoNodeError: /rsm/orders\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        'Traceback (most recent call last):\n  File "x", line 1, in y\n'
        "rsm_spark.errors.NoSuchLogError: there is no log orders"
    )
    assert spoken_error(RuntimeError(_STREAM.replace("{raised}", chained))) == "there is no log orders"


def test_another_error_of_python_is_named_by_its_class() -> None:
    error = RuntimeError(_STREAM.replace("{raised}", "KeyError: 'tail'"))
    assert spoken_error(error) == "KeyError: 'tail'"
    assert own_words(error) is None


@pytest.mark.parametrize(
    ("error", "spoken"),
    [
        (StartGoneError("begins at 700: start later"), "begins at 700: start later"),
        (
            ValueError("[TABLE_NOT_FOUND] no table t\nin catalog c\n\tat org.apache.X\n\tat Y"),
            "[TABLE_NOT_FOUND] no table t\nin catalog c",
        ),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_what_has_no_trace_of_python_is_said_without_frames(error: Exception, spoken: str) -> None:
    assert spoken_error(error) == spoken


def test_a_complaint_of_an_object_store_is_one_line_without_what_was_signed() -> None:
    error = OSError(
        "Generic S3 error\n  \x1b[31m↳\x1b[0m Error performing GET http://h/b/t?X-Amz-Credential=AKIAHUSHHUSH in 1ms - "
        "Server returned non-2xx status code\n ↳ 403 Forbidden\n ↳ <Error><Code>AccessDenied</Code><Message>Access "
        "Denied</Message><StringToSign>hush</StringToSign></Error>"
    )
    assert spoken_error(error).startswith("AccessDenied: Access Denied: the store refuses these credentials")
    said = store_complaint(error)
    assert said is not None
    assert "hush" not in said.lower()
    assert store_complaint(SnapshotError(said)) is None, "what is told in words is no trace of a library"
    assert spoken_error(OSError(f"Generic S3 error: {said}")).count("refuses these credentials") == 1
    assert store_complaint(KeyError("tail")) is None
