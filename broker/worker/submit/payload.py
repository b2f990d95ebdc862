"""Payloads of tasks of type `spark_submit`: arguments, settings, and what they may not say.

    {"args": ["--day", "2026-11-01"], "conf": {"spark.sql.shuffle.partitions": 8}}
    {"application": "/srv/jobs/nightly.py", "args": []}

Master and deploy mode are the worker's. A setting has to be on the worker's list; whatever loads code, names files or
opens doors has to stand there in full, and what the worker itself says is never taken from a payload.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence

import msgspec

from broker.worker.context import TaskError
from ledger.decoding import json_decoder

ARGS_MAX = 500
TEXT_BYTES_MAX = 64 * 1024
"""All arguments and settings together: the system has room for twice as much."""

_NAME = re.compile(r"spark\.[A-Za-z0-9_][A-Za-z0-9_.-]{0,190}", re.ASCII)
_OURS = re.compile(
    r"spark\.(?:master|remote|api\.mode|home|rsm\..*|submit\..*|connect\..*|ui\..*|app\..*|standalone\..*"
    r"|driver\.(?:host|bindAddress|port|supervise|appUIAddress)|port\.maxRetries)",
    re.IGNORECASE,
)
"""Settings that are the worker's, whatever its list says."""
_FAR_REACHING = re.compile(
    r"options|path|jar|file|archive|package|repositor|ivy|plugin|listener|extension|env\.|python|pyspark|script|command"
    r"|secret|password|token|auth|acl|keytab|principal|kerberos|ssl|kubernetes|yarn|hadoop|hive|eventlog|class|dir"
    r"|catalog|warehouse|provider|serializer|redaction|proxy|url|uri|address|host|port|resource|factory|codec|manager",
    re.IGNORECASE,
)
"""Settings that load code, read or write somewhere, or let somebody in: a list names them in full, or not at all."""


class ApplicationPayload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The payload of a task.

    Attributes:
        application: Path of a program in Python, or of a JAR and its class as in "/srv/sums.jar#org.example.Sums"; for
            tasks without a code pool, whose `mode` says so otherwise.
        args: Of the application.
        conf: Settings of Spark.

    """

    application: str = ""
    args: list[str] = []
    conf: dict[str, str | int | float | bool] = {}


def read_application(payload: bytes, allowed_conf: Sequence[str]) -> ApplicationPayload:
    """Read a payload; no bytes are one without arguments and settings.

    Args:
        payload: As it was submitted.
        allowed_conf: Names of settings; see the module.

    Raises:
        TaskError: It is none, or says what it may not.

    """
    try:
        found = json_decoder(ApplicationPayload).decode(payload or b"{}")
    except msgspec.MsgspecError as error:
        raise TaskError(
            f'spark_submit: the payload is none, such as {{"args": ["2026-11-01"], "conf": {{}}}}: {error}'
        ) from None
    if len(found.args) > ARGS_MAX:
        raise TaskError(f"spark_submit: {len(found.args):,} arguments, at most {ARGS_MAX:,}")
    texts = [found.application, *found.args]
    for name, value in found.conf.items():
        _check_conf(name, value, allowed_conf)
        texts += [name, conf_text(value)]
    size = sum(len(text.encode(errors="surrogatepass")) for text in texts)
    if size > TEXT_BYTES_MAX:
        raise TaskError(f"spark_submit: {size:,} bytes of arguments and settings, at most {TEXT_BYTES_MAX:,}")
    for text in texts:
        if not all(letter.isprintable() or letter == "\t" for letter in text):
            raise TaskError(
                f"spark_submit: {text[:60]!r} has line ends or other control characters: put such text into a file"
            )
    return found


def conf_text(value: str | float | bool) -> str:
    """Return the value of a setting as Spark writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_conf(name: str, value: object, allowed: Sequence[str]) -> None:
    shown = name[:80]
    if not _NAME.fullmatch(name):
        raise TaskError(f"spark_submit: conf {shown!r} is no name of a setting of Spark")
    if _OURS.fullmatch(name):
        raise TaskError(f"spark_submit: conf {shown!r} is the worker's to set, not the payload's")
    if name not in allowed and not _is_covered(name, allowed):
        raise TaskError(
            f"spark_submit: conf {shown!r} is not on this worker's list (--submit-conf), which has "
            f"{', '.join(allowed) or 'nothing'}"
        )
    if isinstance(value, str) and "${" in value:
        raise TaskError(f"spark_submit: conf {shown!r}: Spark would put a variable in place of ${{…}}: say the value")


def _is_covered(name: str, allowed: Sequence[str]) -> bool:
    return not _FAR_REACHING.search(name.removeprefix("spark.")) and any(
        fnmatch.fnmatchcase(name, pattern) for pattern in allowed
    )
