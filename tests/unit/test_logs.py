from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from ledger.errors import UsageError
from ledger.logs import configure_logs


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


def test_a_json_line_holds_message_level_time_and_extra_fields() -> None:
    out = io.StringIO()
    configure_logs("info", "json", out)
    logging.getLogger("rsm").warning("ledger %d is gone", 7, extra={"log": "orders", "revision": 3})
    (line,) = _lines(out)
    assert line["message"] == "ledger 7 is gone"
    assert (line["level"], line["logger"], line["log"], line["revision"]) == ("warning", "rsm", "orders", 3)
    assert str(line["time"]).endswith("+00:00")


def test_a_json_line_holds_the_trace_of_an_error_and_stays_one_line() -> None:
    out = io.StringIO()
    configure_logs("info", "json", out)
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        logging.getLogger("rsm").exception("it failed")
    (line,) = _lines(out)
    assert "ValueError: first" in str(line["error"])


def test_what_json_does_not_know_is_written_as_text() -> None:
    out = io.StringIO()
    configure_logs("info", "json", out)
    logging.getLogger("rsm").info("x", extra={"where": object})
    assert _lines(out)[0]["where"] == "<class 'object'>"


def test_a_level_or_format_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="use debug, info, warning or error"):
        configure_logs("loud")
    with pytest.raises(UsageError, match="use text or json"):
        configure_logs("info", "xml")
