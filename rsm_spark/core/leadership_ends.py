"""Ends of leaderships, and who tells of them: pure.

A leader that ends by itself notes it beside the log (`rsm_spark.log.ended_leaderships`). Of one that does not, the next
leader knows only what it saw while it stood behind it in the election. It writes that into the custom metadata of its
ledgers: that costs a take-over nothing, needs no format of the log, and stays for as long as the ledgers do.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from ledger.decoding import json_decoder

_FINDING = "rsm_leader_before"
"""Key of a ledger's custom metadata. Versions that do not know it pass it over."""

SAID_CHARS_MAX = 300
"""Of a reason in words."""


class LeaderEnd(StrEnum):
    """Kind of the end of a leadership."""

    STOPPED = "stopped"
    """Its replica was asked to stop, and let the next one lead."""
    GAVE_UP = "gave-up"
    """It ended the leadership itself; its words say why."""
    PROCESS_GONE = "process-gone"
    """Its process was gone while its host still answered."""
    SILENT = "silent"
    """Its process stood still or was cut off: nobody who could be asked heard its beats."""
    SESSION_ENDED = "session-ended"
    """Its place in the election went and nobody had taken it away: ZooKeeper had heard nothing of it."""
    NOT_IN_LINE = "not-in-line"
    """It stood for election no more when the next leader joined."""
    UNKNOWN = "unknown"
    """Nobody has told: a version that does not tell, or the log has no election."""


class ElectionFinding(msgspec.Struct, frozen=True, omit_defaults=True):
    """Fate of the one before a candidate, as that has seen it when it became the first in line.

    Attributes:
        end: How that one went.
        process: Its incarnation, 32 hex digits; "" = nobody stood there.
        said: Why in words, where the candidate led itself before.

    """

    end: LeaderEnd
    process: str = ""
    said: str = ""


class EndedLeadership(msgspec.Struct, frozen=True, omit_defaults=True):
    """End of a leadership, told by the leader itself.

    Attributes:
        epoch: Of the leadership.
        end: `STOPPED` or `GAVE_UP`.
        at_ms: Wall clock of the leader.
        said: Why, in its words; at most `SAID_CHARS_MAX` characters.

    """

    epoch: int
    end: LeaderEnd
    at_ms: int
    said: str = ""


_WORDS = {
    LeaderEnd.STOPPED: "the leader before was asked to stop",
    LeaderEnd.GAVE_UP: "the leader before gave up",
    LeaderEnd.PROCESS_GONE: "the process of the leader before was gone",
    LeaderEnd.SILENT: "the leader before stood still or was cut off, nobody heard its beats",
    LeaderEnd.SESSION_ENDED: "the session of the leader before had ended",
    LeaderEnd.NOT_IN_LINE: "nobody stood for election",
    LeaderEnd.UNKNOWN: "how the leader before ended is not known",
}


def described_end(end: LeaderEnd, said: str = "") -> str:
    """Return how a leadership ended, in words for log lines and terminals."""
    return f"{_WORDS[end]}{f': {said}' if said else ''}"


def finding_metadata(finding: ElectionFinding | None) -> dict[str, bytes]:
    """Return what the ledgers of a leadership say of the one before, as custom metadata."""
    return {} if finding is None else {_FINDING: msgspec.json.encode(finding)}


def finding_of(custom: Mapping[str, bytes]) -> ElectionFinding | None:
    """Return what a ledger says of the leadership before its own; None if it says nothing that this version knows."""
    try:
        return json_decoder(ElectionFinding).decode(custom[_FINDING])
    except (KeyError, msgspec.MsgspecError):
        return None


def end_of(
    process: str | None, noted: EndedLeadership | None, finding: ElectionFinding | None
) -> tuple[LeaderEnd, str]:
    """Return how a leadership ended, and why in words where anybody said so.

    Args:
        process: Incarnation of its leader; None = not known.
        noted: Its own word.
        finding: What the next leader saw of the one before it in line, which may be another process.

    """
    if noted is not None:
        return noted.end, noted.said
    if finding is None or (finding.process and process and finding.process != process):
        return LeaderEnd.UNKNOWN, ""
    return finding.end, finding.said
