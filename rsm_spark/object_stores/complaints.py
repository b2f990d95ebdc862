"""Complaints of object stores as one line: what was seen and what to do, without a secret.

Each library words them otherwise, over many lines, with addresses, headers and what the store sent back. What counts
is the store's own code for it, which stands in all of them. `ObjectStoreError` is an OSError with such words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from rsm_spark.object_stores.storage_options import secrets_of

_SEEN_LETTERS_MAX = 240
_CODES = (
    re.compile(r"<Code>\s*(\w+)\s*</Code>"),
    re.compile(r"An error occurred \((\w+)\)"),
    re.compile(r"AWS Error (\w+)"),
    re.compile(r"\bcode: \"?(\w+)\"?"),
)
_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")
_STATUS = re.compile(r"(?:\bstatus(?: code)?:? |\()(4\d\d|5\d\d)\b")
_RETRIES = re.compile(r", max_retries:? \d+, retry_timeout:? \S+")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m|↳")
_QUERY = re.compile(r"\?[^\s'\")<>]*")
_LOGIN = re.compile(r"://[^\s/@'\"]+@")
_KEY_ID = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{8,}\b")
_SIGNED = re.compile(r"(?i)\b(signature|credential|authorization|token|secret\w*|x-amz-[\w-]+)\s*[=:]\s*\S+")


class ObjectStoreError(OSError):
    """A store refused something, or cannot be reached; its words hold no secret."""


class _Kind(NamedTuple):
    codes: frozenset[str]
    statuses: frozenset[str]
    words: tuple[str, ...]
    advice: str


_KINDS = (
    _Kind(
        frozenset({"NoSuchBucket", "ContainerNotFound", "NO_SUCH_BUCKET"}),
        frozenset(),
        ("specified bucket does not exist",),
        "there is no such bucket: make it, or name another one",
    ),
    _Kind(
        frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired", "InvalidToken"}),
        frozenset(),
        ("token has expired", "token included in the request is expired"),
        "the credentials have expired: give new ones and run it again; what is written stays",
    ),
    _Kind(frozenset({"RequestTimeTooSkewed"}), frozenset(), (), "the clock of this machine is wrong: set it"),
    _Kind(
        frozenset(
            {"SlowDown", "SLOW_DOWN", "Throttling", "ThrottlingException", "TooManyRequests", "ServiceUnavailable"}
        ),
        frozenset({"429", "503"}),
        ("reduce your request rate",),
        "the store had too much to do, and still had after several tries: try again later, or copy more slowly",
    ),
    _Kind(
        frozenset({"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "AllAccessDisabled", "Forbidden"}),
        frozenset({"401", "403"}),
        ("access denied", "ACCESS_DENIED"),
        "the store refuses these credentials: give others (AWS_… in the environment, or --storage-options-file), or "
        "let them in there",
    ),
    _Kind(
        frozenset({"PreconditionFailed", "ConditionalRequestConflict"}),
        frozenset({"409", "412"}),
        (),
        "somebody else wrote at the same time: try again",
    ),
    _Kind(
        frozenset(),
        frozenset(),
        ("unable to locate credentials", "no credentials", "credentials provider", "CredentialsNotLoaded", "169.254."),
        "there are no credentials: give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment, or "
        "--storage-options-file FILE",
    ),
    _Kind(
        frozenset(),
        frozenset(),
        ("connect", "timed out", "timeout", "dns error", "name resolution", "resolve", "broken pipe", "reset by peer"),
        "the store cannot be reached: look at the network and at its address (aws_endpoint_url)",
    ),
    _Kind(frozenset({"InternalError"}), frozenset({"500", "502", "504"}), (), "the store failed: try again"),
)


def complaint_of(error: BaseException, options: Mapping[str, str] | None = None) -> str:
    """Return in one line what a store or its library said, and what to do; no secret is in it.

    Args:
        error: As the library raised it.
        options: Of the store: their secrets are left out.

    """
    return complaint_in(str(error) or type(error).__name__, options)


def complaint_in(text: str, options: Mapping[str, str] | None = None) -> str:
    """Return in one line what the text of an error says, and what to do; see `complaint_of`."""
    text = _RETRIES.sub("", " ".join(_COLOURS.sub("", text).split()))
    for known in _KINDS:  # What is one line already stays as it is.
        text = text.replace(f": {known.advice}", "")
    code, status = _marks_of(text)
    said = match[1] if (match := _MESSAGE.search(text)) else text
    seen = without_secrets(said, options)
    if code and code not in seen:
        seen = f"{code}: {seen}"
    kind = _kind_of(code, status, text)
    return seen if kind is None else f"{seen}: {kind.advice}"


def is_refusal(error: BaseException) -> bool:
    """Return whether a store refused, or could not be asked: that says nothing of what it holds."""
    text = " ".join(_COLOURS.sub("", str(error)).split())
    return _kind_of(*_marks_of(_RETRIES.sub("", text)), text) is not None


def without_secrets(text: str, options: Mapping[str, str] | None = None) -> str:
    """Return a text in one line, of some length at most, without secrets, parameters of addresses and log-ins."""
    for secret in secrets_of(options):
        text = text.replace(secret, "…")
    for pattern, put in ((_QUERY, ""), (_LOGIN, "://"), (_KEY_ID, "…"), (_SIGNED, r"\1=…")):
        text = pattern.sub(put, text)
    line = " ".join(text.split()).rstrip(".:")
    return line if len(line) <= _SEEN_LETTERS_MAX else f"{line[:_SEEN_LETTERS_MAX]}…"


def _marks_of(text: str) -> tuple[str, str]:
    """Return the code of the store and the HTTP status that an error names; "" = none."""
    code = next((match[1] for pattern in _CODES if (match := pattern.search(text))), "")
    return code, match[1] if (match := _STATUS.search(text)) else ""


def _kind_of(code: str, status: str, text: str) -> _Kind | None:
    lower = text.lower()
    for kind in _KINDS:
        if code in kind.codes:
            return kind
    for kind in _KINDS:
        if any(word.lower() in lower for word in kind.words) or status in kind.statuses:
            return kind
    return None
