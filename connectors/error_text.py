"""The one sentence in what Spark raises: it wraps the error of a source in pages of traces of two languages."""

from __future__ import annotations

import re

from rsm_spark.object_stores.complaints import complaint_in

# What Python prints last in a trace: the class with its module, and the message, up to a frame or to what has no text.
_CLASS = r"(?:\w+\.)*\w+(?:Error|Exception|Interrupt)"
_MESSAGE = r"(?P<message>.+(?:\n(?!\s*$|\s+at |Caused by|\s*File |Traceback|\w+\.).+)*)"
_RAISED = re.compile(rf"^(?P<name>{_CLASS}): {_MESSAGE}", re.MULTILINE)
# Without a trace ours stand behind what Spark says of them, in the same line.
_OUR_PACKAGES = "connectors|ledger|rsm_spark|broker"
_OURS = re.compile(rf"(?:^|(?<=: ))(?P<name>(?:{_OUR_PACKAGES})\.{_CLASS}): {_MESSAGE}", re.MULTILINE)
_TRACE = "Traceback (most recent call last)"
_STATE = re.compile(r"\s*SQLSTATE: \w{5}\s*$")
_JVM_FRAME = "\n\tat "
# What errors of deltalake's stores begin with: behind it come requests and answers, with what was signed.
_STORE_MARKS = ("Generic S3 error", "Generic GCS error", "Generic MicrosoftAzure error", "Error performing ")


def own_words(error: BaseException) -> str | None:
    """Return the message of an error of this project that Spark has wrapped, however deep; None if there is none."""
    ours = _raised(str(error), _OURS)
    return ours[-1][1] if ours else None


def spoken_error(error: BaseException) -> str:
    """Return what an error says, without traces.

    An error of this project that Spark has wrapped speaks for all; then the last error of a Python trace; else the
    message, without the JVM's frames. An error without a message is named by its class. What an object store complains
    of is one line without secrets.
    """
    spoken = _spoken(error)
    return complaint_in(spoken) if _is_complaint(spoken) else spoken


def store_complaint(error: BaseException) -> str | None:
    """Return what an object store complains of, in one line without secrets; None if the error is no such one.

    The error itself, and a trace of it, repeat what was sent and what came back.
    """
    text = str(error)
    return complaint_in(_spoken(error)) if _is_complaint(text) else None


def _is_complaint(text: str) -> bool:
    return any(mark in text for mark in _STORE_MARKS)


def _spoken(error: BaseException) -> str:
    text = str(error).strip()
    own = own_words(error)
    if own is not None:
        return own
    found = _raised(text)
    if _TRACE in text and found:
        name, message = found[-1]
        return f"{name.rpartition('.')[2]}: {message}"
    return _STATE.sub("", text.split(_JVM_FRAME, 1)[0]) if text else type(error).__name__


def _raised(text: str, shape: re.Pattern[str] = _RAISED) -> list[tuple[str, str]]:
    """Return class and message of each error that a text shows."""
    return [(match["name"], _STATE.sub("", match["message"]).strip()) for match in shape.finditer(text)]
