"""Names of the fields of log lines: one name means one thing in every process.

A line that speaks of one ledger, task or log carries its id as a field besides the sentence, so that a search for
`ledger = 7` finds the lines of all processes. A name that is not here is not used: a test reads the code for it.
"""

from __future__ import annotations

from typing import Final

ALWAYS: Final[dict[str, str]] = {
    "time": "when, in UTC, as RFC 3339 says: `2026-01-31T12:00:00.123+00:00`",
    "level": "`debug`, `info`, `warning`, `error`, `critical`",
    "logger": "part of the program",
    "message": "the sentence",
}
"""Fields of every line."""

FIELDS: Final[dict[str, str]] = {
    # What failed.
    "error": "what was seen: an error as text",
    "trace": "where: the stack of an error or of a thread; its lines are separated by `\\n`",
    "reason": "why something was given up, refused or changed",
    # Ids.
    "log": "name of a replicated log",
    "replica": "id of a replica of a log",
    "writer": "id of a writer of a plain log, name of a writer of Spark",
    "epoch": "number of a leadership",
    "revision": "of a log: its last record that the replica has applied",
    "ledger": "id of a ledger",
    "entry": "id of an entry in its ledger",
    "first_entry": "id of the first entry of some",
    "last_entry": "id of the last entry of some",
    "bookie": "id of a bookie",
    "reader": "name of a reader that holds a log",
    "worker": "id of a worker",
    "tenant": "name of a tenant",
    "task": "id of a task",
    "code": "name of deployed code",
    "pool": "name of a pool of workers",
    "batch": "number of a micro-batch of a query",
    "table": "name of a table",
    "number": "of an error that a caller was told of by this number alone",
    # Places.
    "peer": "address of who is at the other end of a connection",
    "address": "address of another process, as host:port",
    "method": "method that was called",
    "path": "path of a file, a page or a node of ZooKeeper",
    "node": "last part of the name of a node of ZooKeeper",
    "place": "where snapshots or a Delta table lie",
    "folder": "folder on a disk",
    # Amounts.
    "segments": "ids of segments",
    "ledgers": "how many ledgers",
    "free_bytes": "room of a disk",
    "free_bytes_min": "room below which a bookie takes no adds",
    "failed": "bookies of an ensemble that failed, by position, with the reason",
    "replaced": "bookies of an ensemble, with who took their place and why",
    # Lines of the audit.
    "principal": "audit: who",
    "role": "audit: as what",
    "source": "audit: from where",
    "action": "audit: did what",
    "target": "audit: on what",
    "outcome": "audit: how it ended",
    "left_out": "audit: how many refusals of this kind were not told since the last line of it",
    "refusals": "audit: refusals since the process began, by reason",
}
"""Fields of some lines."""

TRACED: Final[dict[str, str]] = {
    "trace_id": "of the trace in which the line was written, as OpenTelemetry names it: 32 hex digits",
    "span_id": "of the span of it, 16 hex digits",
}
"""Fields of lines that were written in a trace that is told."""
