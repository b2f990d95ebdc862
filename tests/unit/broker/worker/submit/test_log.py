"""What an application writes: its end is kept, and what Spark's own lines say is noticed."""

from __future__ import annotations

from broker.worker.submit.log import ApplicationLog, OutputTail
from broker.worker.submit.result import failure_text

_AT = b"26/11/27 18:00:00 "
_SUBMITTED = _AT + b"INFO ClientEndpoint: Driver successfully submitted as driver-20261127180000-0003\n"
_RUNS = _AT + b"INFO ClientEndpoint: Driver running on 10.0.0.7:37101 (worker-20261127175900-10.0.0.7-3001)\n"


def test_the_end_is_kept_whole_lines_first_and_says_what_is_missing() -> None:
    tail = OutputTail(10)
    tail.feed(b"12345")
    assert tail.text == "12345"
    tail.feed(b"6789\nabc\n")
    assert tail.text == "[…]\nabc\n"
    for _ in range(100):
        tail.feed(b"x" * 50)
    assert tail.text == "[…]\n" + "x" * 10


def test_ids_are_taken_from_sparks_own_lines_and_the_first_ones_count() -> None:
    log = ApplicationLog(1000)
    log.feed(b"Driver successfully submitted as driver-20261127180000-0001\n")
    log.feed(b"INFO ClientEndpoint: Driver successfully submitted as driver-20261127180000-0002\n")
    assert log.submission_id == ""
    log.feed(_SUBMITTED[:30])
    log.feed(_SUBMITTED[30:] + _RUNS)
    log.feed(_SUBMITTED.replace(b"0003", b"0004"))
    log.feed(_AT + b"INFO StandaloneSchedulerBackend: Connected to Spark cluster with app ID app-20261127180001-0005\n")
    assert (log.submission_id, log.driver_host) == ("driver-20261127180000-0003", "10.0.0.7")
    assert log.application_id == "app-20261127180001-0005"
    log.feed(_AT + b"INFO ClientEndpoint: State of driver driver-20261127180000-0003 is RUNNING\n")
    assert log.driver_end == ""
    log.feed(
        _AT + b"INFO ClientEndpoint: State of driver driver-20261127180000-0003 is FAILED, exiting spark-submit JVM.\n"
    )
    assert log.driver_end == "FAILED"


def test_ids_of_yarn_and_kubernetes_are_known_by_their_launchers_lines() -> None:
    yarn, pods = ApplicationLog(1000), ApplicationLog(1000)
    yarn.feed(_AT + b"INFO Client: Submitted application application_1700000000000_0042\n")
    assert yarn.submission_id == yarn.application_id == "application_1700000000000_0042"
    pods.feed(
        _AT + b"INFO LoggingPodStatusWatcherImpl: Deployed Spark application sums with application ID "
        b"spark-0123456789abcdef0123456789abcdef and submission ID prod:sums-1-driver into Kubernetes\n"
    )
    assert pods.submission_id == "prod:sums-1-driver"
    assert pods.application_id == "spark-0123456789abcdef0123456789abcdef"


def test_errors_are_told_without_sparks_chatter() -> None:
    log = ApplicationLog(10_000)
    log.feed(_AT + b"WARN Utils: something\nTraceback\nValueError: bad\n" + _AT + b"INFO ShutdownHookManager: called\n")
    assert log.troubles.endswith("WARN Utils: something\nTraceback\nValueError: bad\n")
    assert "ShutdownHookManager" in log.text
    log.feed(b"y" * 100_000)
    assert len(log.text) < 11_000
    assert log.last_line.startswith("yyy")


def test_an_error_has_the_ends_of_log_and_output_and_room_for_both() -> None:
    told = failure_text("exit code 1", ("app-1", ""), log="l" * 9_000, output="Traceback" + "o" * 1_400)
    assert told.startswith("SparkSubmit: exit code 1 (app-1)\nlll")
    assert "\nTraceback" in told
    assert len(told) < 3_100
    assert failure_text("exit code 1", (), log="", output="") == "SparkSubmit: exit code 1"
    assert len(failure_text("x", (), log="l" * 9_000, output="")) > 3_000
    assert len(failure_text("x", (), log="l" * 9_000, output="o" * 9_000)) < 3_100
