from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from ledger.audit_lines import AuditLine, tell
from ledger.errors import UsageError
from ledger.logs import (
    FIELDS_MAX,
    MESSAGE_CHARS_MAX,
    TRACE_CHARS_MAX,
    VALUE_CHARS_MAX,
    configure_command_logs,
    configure_logs,
)

HOSTILE = "a\n2026-01-01T00:00:00.000+00:00 ERROR ledger: forged\r\n\x1b[2Jb\x9b31mc\u2028d\u202ee\x00\x7f"
SECRETS = {
    "Authorization: Bearer abcDEF123456789": "abcDEF123456789",
    "GET https://ann:hunter22@s3.example.org/x failed": "hunter22",
    "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2lnbmF0dXJl was sent": "c2lnbmF0dXJl",
    "called with password=hunter22, user=ann": "hunter22",
    "aws_secret_access_key=AKIAxyz/12345 is wrong": "AKIAxyz/12345",
    '{"token": "abc-123-def", "user": "ann"}': "abc-123-def",
    "key: -----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIA\n-----END EC PRIVATE KEY-----": "MHcCAQEEIA",
    "key: -----BEGIN PRIVATE KEY-----\nMHcCAQEEIA": "MHcCAQEEIA",
}


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Leave the root logger as it was."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def _lines(text: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.getvalue().splitlines()]


def _written(log_format: str, say: object, **given: bool) -> str:
    out = io.StringIO()
    configure_logs("info", log_format, out, **given)
    say(logging.getLogger("rsm"))  # type: ignore[operator]
    return out.getvalue()


def test_a_json_line_holds_message_level_time_and_extra_fields() -> None:
    out = io.StringIO()
    configure_logs("info", "json", out)
    logging.getLogger("rsm").warning("ledger %d is gone", 7, extra={"log": "orders", "revision": 3})
    (line,) = _lines(out)
    assert line["message"] == "ledger 7 is gone"
    assert (line["level"], line["logger"], line["log"], line["revision"]) == ("warning", "rsm", "orders", 3)
    assert str(line["time"]).endswith("+00:00")


def test_a_json_line_holds_an_error_and_its_trace_and_stays_one_line() -> None:
    out = io.StringIO()
    configure_logs("info", "json", out)
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        logging.getLogger("rsm").exception("it failed")
    (line,) = _lines(out)
    assert line["error"] == "ValueError: first\nsecond"
    assert str(line["trace"]).startswith("Traceback")


def test_a_text_line_holds_time_level_logger_sentence_and_fields() -> None:
    extra = {"ledger": 7, "bookie": "b1:3181", "free_bytes": None, "replaced": {"b1": "b2"}}
    line = _written("text", lambda log: log.warning("it is %s", "gone", extra=extra))
    time_, rest = line.split(" ", 1)
    assert rest == 'WARNING rsm: it is gone (ledger=7, bookie=b1:3181, replaced={"b1":"b2"})\n'
    assert time_.endswith("+00:00")
    assert time_[10] == "T"


def test_a_text_line_of_the_audit_says_nothing_twice() -> None:
    out = io.StringIO()
    configure_logs("info", "text", out)
    said = {
        "principal": "ann",
        "role": "operator",
        "source": "10.0.0.7",
        "action": "PUT",
        "target": "x",
        "outcome": "done",
    }
    assert tuple(said) == AuditLine.__struct_fields__
    tell(said, log="orders")
    assert out.getvalue().endswith("ann (operator) from 10.0.0.7: PUT on x: done\n")


def test_a_line_of_a_command_is_its_sentence_and_its_fields() -> None:
    line = _written(
        "text", lambda log: log.warning("the leader is reached again", extra={"log": "orders"}), is_brief=True
    )
    assert line == "rsm: the leader is reached again (log=orders)\n"


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_hostile_text_is_one_line_that_no_terminal_obeys(log_format: str) -> None:
    def say(log: logging.Logger) -> None:
        log.warning("from %s", HOSTILE, extra={"peer": HOSTILE, "reason": {"a": HOSTILE}, HOSTILE: 1})

    written = _written(log_format, say)
    assert written.count("\n") == 1
    assert not [code for code in written[:-1] if not code.isprintable()]
    if log_format == "json":
        assert json.loads(written)["peer"] == HOSTILE


def test_a_hostile_error_does_not_forge_a_line_in_a_trace() -> None:
    def say(log: logging.Logger) -> None:
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            log.exception("it failed")

    first, *rest = _written("text", say).splitlines()
    assert "it failed (error=ValueError: a\\n2026" in first
    assert len(rest) > 2
    assert all(line.startswith("    ") and line.isprintable() for line in rest)


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_line_is_bounded(log_format: str) -> None:
    huge = "x" * (1 << 20)

    def say(log: logging.Logger) -> None:
        extra = {f"field_{place}": [huge, place] for place in range(10 * FIELDS_MAX)}
        try:
            raise ValueError(huge)
        except ValueError:
            log.exception(huge, extra=extra)

    written = _written(log_format, say)
    assert f"… ({1 << 20:,} characters)" in written
    assert len(written) < 1.2 * (MESSAGE_CHARS_MAX + FIELDS_MAX * (VALUE_CHARS_MAX + 100) + TRACE_CHARS_MAX)


@pytest.mark.parametrize("log_format", ["text", "json"])
@pytest.mark.parametrize("text", SECRETS)
def test_what_has_the_form_of_a_secret_is_not_written(log_format: str, text: str) -> None:
    def say(log: logging.Logger) -> None:
        try:
            raise ValueError(text)
        except ValueError:
            log.exception("it said %s", text, extra={"reason": text, "target": [text], "token": SECRETS[text]})

    written = _written(log_format, say)
    assert SECRETS[text] not in written
    assert "***" in written


def test_words_about_secrets_are_written() -> None:
    words = "--token-file /etc/t: the token cannot be read; basic log-in is off; key_id=4f; refused: wrong-password"
    written = _written("json", lambda log: log.info(words, extra={"refusals": {"wrong-password": 3}}))
    assert json.loads(written)["message"] == words
    assert json.loads(written)["refusals"] == {"wrong-password": 3}


def test_looking_for_secrets_takes_no_longer_with_text_made_for_it() -> None:
    began = time.process_time()
    for piece in ("eyJ", "bearer ", "-----BEGIN ", "://a:", "token='", "secret", "eyJaaaaa."):
        _written("json", lambda log, text=piece * 400_000: log.info(text))
    assert time.process_time() - began < 20  # Milliseconds, not the hours of a search that begins again at each letter.


def test_what_json_does_not_know_is_written_as_text() -> None:
    class Nameless:
        def __str__(self) -> str:
            raise RuntimeError

    out = io.StringIO()
    configure_logs("info", "json", out)
    extra = {"where": object, "path": "\udcff", "reason": Nameless(), "bytes": b"\xff", "count": float("nan")}
    logging.getLogger("rsm").info("x %s", "\udcff", extra=extra)
    (line,) = _lines(out)
    assert (line["where"], line["path"], line["reason"]) == ("<class 'object'>", "\\udcff", "<Nameless>")
    assert line["message"] == "x \\udcff"


def test_a_line_that_is_put_together_wrongly_is_told() -> None:
    written = _written("json", lambda log: log.info("%d bytes", "many"))
    assert json.loads(written)["message"] == "%d bytes (TypeError: its arguments do not fit)"


def test_a_level_or_format_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="use debug, info, warning or error"):
        configure_logs("loud")
    with pytest.raises(UsageError, match="use text or json"):
        configure_logs("info", "xml")
    logging.getLogger().handlers[:] = []
    with pytest.raises(UsageError, match="RSM_LOG_FORMAT.*use text or json"):
        configure_command_logs({"RSM_LOG_FORMAT": "xml"})


def test_a_command_logs_as_the_environment_says() -> None:
    script = "import logging, ledger.logs as l; l.configure_command_logs(); logging.getLogger('rsm').info('it is so')"
    said = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "RSM_LOG_FORMAT": "json", "RSM_LOG_LEVEL": "info"},
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    assert json.loads(said)["message"] == "it is so"
