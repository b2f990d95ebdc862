"""Decisions on commands: records to log with a reply, or a refusal that logs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from broker.machine.messages import encode
from broker.machine.replies import BrokerReply, Refusal, Refused
from rsm_spark.core.machine import Decision, DeclinedDecision

LoggedRecord: TypeAlias = tuple[int, tuple[Any, ...]]
"""Type and fields of a record to log."""

REASON_CHARS_MAX = 900
"""Characters of a refusal's reason: a reply has a bound, and reasons quote what they were given."""


def answered(records: Sequence[LoggedRecord], reply: BrokerReply) -> Decision:
    """Return a decision to log these records and reply so."""
    return Decision(records, encode(reply))


def refused(refusal: Refusal, reason: str) -> Decision:
    """Return a decision to do nothing."""
    sound = reason[:REASON_CHARS_MAX].encode(errors="replace").decode()  # What it quotes may be anything.
    return DeclinedDecision((), encode(Refused(refusal.value, sound)))
