"""Bodies that two readers might take differently are refused, with the place and the reason."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.api.task_bodies import BatchBody, SubmitBody
from ledger.http.problems import HttpProblem
from ledger.http.strict_json import DEPTH_MAX, StrictDecoder

_SUBMIT = StrictDecoder(SubmitBody)
_BATCH = StrictDecoder(BatchBody)


def _refused(body: bytes, decoder: StrictDecoder = _SUBMIT) -> str:
    with pytest.raises(HttpProblem) as caught:
        decoder.decode(body)
    assert caught.value.status == 400
    return caught.value.detail


def test_a_body_is_read() -> None:
    body = _SUBMIT.decode(b'{"type": "mail", "payload": "h\\u00e4", "resources": {"db": 2}}')
    assert (body.type, body.payload, body.resources) == ("mail", "hä", {"db": 2})


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"typ": "mail"}', "`typ`; did you mean 'type'?"),
        (b'{"type": "mail", "playload": "x"}', "did you mean 'payload'?"),
        (b'{"type": "mail", "type": "spam"}', "same member twice"),
        (b'{"type": "mail", "t\\u0079pe": "spam"}', "same member twice"),
        (b'{"type": "mail", "payload_json": {"a": [{"b": 1, "b": 2}]}}', "same member twice"),
        (b'{"type": "mail", "priority": 1.5}', "$.priority"),
        (b'{"type": "mail", "priority": "1"}', "$.priority"),
        (b'{"type": "mail", "priority": NaN}', "not JSON"),
        (b'{"type": "mail", "payload_json": [NaN]}', "not JSON"),
        (b'{"type": "mail", "payload_json": -Infinity}', "not JSON"),
        (b'{"type": "mail", "payload_json": ' + b"9" * 5_000 + b"}", "more than 16 digits"),
        (b'{"type": "mail", "payload_json": 12345678901234567}', "more than 16 digits"),
        (b'{"type": "mail", "delay_s": 1e999}', "out of range"),
        (b'{"type": "mail", "max_attempts": ' + b"9" * 15 + b"}", "$.max_attempts"),
        (b'{"type": "\\ud800"}', "not JSON"),
        (b'{"type": "mail", "payload_json": "\\udfff"}', "not JSON"),
        (b'{"type": "\xff"}', "not UTF-8"),
        (b'{"type": "mail"} {}', "trailing"),
        (b'{"type": "mail"', "not JSON"),
        (b"", "not JSON"),
        (b"[]", "Expected `object`"),
        (b"{}", "missing required field `type`"),
        (b'{"type": ""}', "$.type"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b'{"type": "mail", "delay_s": -1}', "$.delay_s"),
        (b'{"type": "mail", "priority": -1000001}', "$.priority"),
        (b'{"type": "mail", "ttl_ms": 9007199254740993}', "$.ttl_ms"),
        (b'{"type": "' + b"x" * 201 + b'"}', "$.type"),
    ],
)
def test_a_body_that_is_not_what_it_must_be_is_refused_with_the_reason(body: bytes, says: str) -> None:
    assert says in _refused(body)


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_a_body_is_refused_when_it_is_nested_deeper_than_the_bound(opening: bytes) -> None:
    closing = b"]" if opening == b"[" else b"}"
    for depth in (DEPTH_MAX + 1, 1_000, 40_000):
        nested = opening * depth + b"1" + closing * depth
        assert "nested deeper" in _refused(b'{"type": "mail", "payload_json": ' + nested + b"}")
    shallow = opening * (DEPTH_MAX - 2) + b"1" + closing * (DEPTH_MAX - 2)
    assert bytes(_SUBMIT.decode(b'{"type": "mail", "payload_json": ' + shallow + b"}").payload_json) == shallow


_MIB_7 = 7 * 1024 * 1024


@pytest.mark.parametrize(
    ("filling", "says"),
    [
        (b"[],", "values"), (b"{},", "values"), (b'"",', "strings"), (b'{"a":1},', "strings"), (b"1,", "values"),
        (b"[" * 60 + b"]" * 60 + b",", "objects and arrays"), (b"[", "objects and arrays"), (b'"', "strings"),
    ],
)  # fmt: skip
def test_a_body_that_would_hold_up_the_broker_is_refused_before_it_is_decoded(filling: bytes, says: str) -> None:
    body = b'{"type": "mail", "payload_json": [' + filling * (_MIB_7 // len(filling))
    assert f"more than {says}" in _refused(body).replace("300,000 ", "").replace("600,000 ", "").replace("50,000 ", "")


def test_a_full_batch_whose_tasks_say_everything_is_within_the_bounds() -> None:
    one = {
        "type": "a", "payload": "p", "slot": "s", "key": "k", "code": "c", "mode": "m", "tenant": "t", "priority": 1,
        "group": 1, "delay_s": 1.0, "ttl_s": 1.0, "timeout_s": 1.0, "heartbeat_s": 1.0, "max_attempts": 1,
        "resources": {"db": 1, "gpu": 2, "net": 3}, "retry": {"backoff_ms": 1, "rules": [{"error": "e"}]},
    }  # fmt: skip
    assert len(_BATCH.decode(json.dumps({"tasks": [one] * 5_000}).encode()).tasks) == 5_000


def test_many_tasks_beside_each_other_are_not_deep() -> None:
    body = msgspec.json.encode({"tasks": [{"type": "mail", "resources": {"db": 1}}] * 3_000})
    assert len(_BATCH.decode(body).tasks) == 3_000


def test_a_member_twice_is_found_in_one_task_of_many() -> None:
    good, bad = b'{"type":"mail","payload":"{\\"a\\": \\"b\\"}"}', b'{"type":"a","slot":"b","slot":"c"}'
    assert "same member twice" in _refused(b'{"tasks":[' + b",".join([good] * 500 + [bad]) + b"]}", _BATCH)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**15), 10**15) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=12,
)  # fmt: skip


@given(payload=_JSON, is_ascii=st.booleans())
def test_any_json_may_be_a_payload_and_is_kept_as_it_is_written(payload: Any, is_ascii: bool) -> None:
    written = json.dumps(payload, ensure_ascii=is_ascii).encode()
    kept = bytes(_SUBMIT.decode(b'{"type":"mail","payload_json":' + written + b"}").payload_json)
    assert kept == written


@given(text=st.text(st.characters(codec="utf-8")))
def test_any_text_may_be_a_payload(text: str) -> None:
    assert _SUBMIT.decode(json.dumps({"type": "mail", "payload": text}).encode()).payload == text


@given(body=st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    for text in (body, b'{"type":"a","payload_json":' + body + b"}"):
        try:
            _SUBMIT.decode(text)
        except HttpProblem as problem:
            assert problem.status == 400  # noqa: PT017
