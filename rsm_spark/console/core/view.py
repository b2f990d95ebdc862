"""View of a cluster at one moment, as the console's page gets it. Times are ms since 1970; 0 = never, or not known."""

from __future__ import annotations

import msgspec

SECTIONS = ("bookies", "copies", "logs", "tasks", "findings", "warnings", "history")
"""Parts of the page that change by themselves; an event names the part that did."""


class BookieRow(msgspec.Struct, frozen=True):
    """One bookie: its state is "writable", "read-only", "draining" or "missing"; `problem` says what is wrong."""

    bookie_id: str
    state: str
    total_bytes: int | None
    free_bytes: int | None
    ledger_count: int
    problem: str = ""


class LackingLedger(msgspec.Struct, frozen=True):
    """Ledger that lacks copies; `worker` = who copies it now, `is_marked` = an auditor has noticed."""

    ledger_id: int
    entry_count: int
    copies_min: int
    bookie_ids: tuple[str, ...]
    is_being_written: bool
    is_marked: bool
    worker: str


class CopiesView(msgspec.Struct, frozen=True, kw_only=True):
    """Copies of all ledgers.

    Attributes:
        summary: What is lacking, and since when, in words.
        is_whole: Nothing is lacking.
        ledger_count: Ledgers.
        lacking: Those that lack copies; the first so many of them.
        lacking_count: All of them.
        entry_count: Entries known to lack a copy.
        unreadable_count: Ledgers of which nobody who serves has some entries.
        since_ms: When the oldest was noticed.
        auditor: Who looks for lost copies; "" = nobody.
        is_enabled: Auto-recovery is not switched off.
        checked_ms: When all copies were last checked.

    """

    summary: str
    is_whole: bool
    ledger_count: int
    lacking: tuple[LackingLedger, ...]
    lacking_count: int
    entry_count: int
    unreadable_count: int
    since_ms: int
    auditor: str
    is_enabled: bool
    checked_ms: int


class ReplicaRow(msgspec.Struct, frozen=True, kw_only=True):
    """One replica of a log; `problem` says why it tells nothing, or has stopped.

    Attributes:
        behind: Records that the most advanced replica has and it has not.
        lag_ms: How old its state may be; -1 = it has applied nothing yet.
        snapshots: Revisions of its local snapshots, the newest last.
        snapshot_ms: When the newest one was made.

    """

    replica_id: str
    address: str
    role: str = ""
    phase: str = ""
    revision: int = 0
    behind: int = 0
    lag_ms: int = -1
    row_count: int = 0
    session_count: int = 0
    queued: int = 0
    machine_version: int = 0
    snapshots: tuple[int, ...] = ()
    snapshot_ms: int = 0
    damaged_snapshots: int = 0
    problem: str = ""


class ConsumerRow(msgspec.Struct, frozen=True, kw_only=True):
    """Reader for which a log is held: a follower in Spark, a Delta table, a subscription.

    Attributes:
        behind: Records that it has not read, as far as it is known.
        held_bytes: Of closed ledgers that stay for it.
        lost: Records that were trimmed before it has read them.

    """

    name: str
    what: str
    revision: int
    behind: int
    moved_ms: int
    held_bytes: int
    lost: int
    problem: str = ""


class LogRow(msgspec.Struct, frozen=True, kw_only=True):
    """One log.

    Attributes:
        machine: Name of its machine; "" = not known.
        is_plain: A plain log: it is written by programs and has no replicas.
        leader: Replica, or writer of a plain log; "" = nobody.
        revision: As far as it is known.
        verified: By place, the revision of its newest verified snapshot.
        trim_count: Ledgers that may go now.
        stays: Why the others stay, in words; the first so many.
        url: Of an HTTP API of its leader, or of another replica; "" = none has one.
        forgotten_by: Who said that nobody is to serve it any more; "" = nobody.
        problem: Why it is not shown; "" = it is.

    """

    log: str
    log_id: str = ""
    machine: str = ""
    is_plain: bool = False
    leader: str = ""
    leader_address: str = ""
    epoch: int = 0
    revision: int = 0
    log_version: int = 0
    ledger_count: int = 0
    deleting_count: int = 0
    verified: dict[str, int] = {}
    trim_count: int = 0
    stays: tuple[str, ...] = ()
    alarms: tuple[str, ...] = ()
    replicas: tuple[ReplicaRow, ...] = ()
    consumers: tuple[ConsumerRow, ...] = ()
    url: str = ""
    forgotten_by: str = ""
    problem: str = ""


class TaskTypeRow(msgspec.Struct, frozen=True):
    """Tasks of one type; `is_served` = a worker that is connected runs them."""

    type: str
    waiting: int
    running: int
    error: int
    is_served: bool


class TasksView(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks of one broker.

    Attributes:
        log: Of the broker.
        url: Of its dashboard; "" = it has none.
        error: Dead letters.
        finished: Those that are not purged yet.
        workers: That are connected.
        threads: Tasks that these can run at once.
        oldest_waiting_ms: When the oldest task that waits was submitted.
        types: By name; the first so many.
        problem: Why the rest is not known; "" = it is.

    """

    log: str
    url: str = ""
    waiting: int = 0
    running: int = 0
    delayed: int = 0
    error: int = 0
    finished: int = 0
    workers: int = 0
    threads: int = 0
    oldest_waiting_ms: int = 0
    types: tuple[TaskTypeRow, ...] = ()
    problem: str = ""


class FindingRow(msgspec.Struct, frozen=True):
    """One thing that the doctor looked at; `grade` is "good", "note" or "bad"."""

    what: str
    grade: str
    seen: str
    advice: str = ""


class ConsoleWarning(msgspec.Struct, frozen=True):
    """Warning: somebody has to do something.

    Attributes:
        grade: "bad", or "note" where nothing is lost by waiting.
        about: Name of what is wrong: the same as long as it goes on, and no two warnings have the same.
        cause: What is wrong, in one sentence.
        advice: What to do; "" = what `command` says.
        command: To type; "" = none would help.
        view: Of the page, where more of it is shown.
        since_ms: Since when the console sees it.

    """

    grade: str
    about: str
    cause: str
    advice: str
    command: str
    view: str
    since_ms: int = 0


class ConsoleView(msgspec.Struct, frozen=True, kw_only=True):
    """View of a cluster.

    Attributes:
        at_ms: When it was looked at; a view that is made later has a higher one.
        problem: Why it could not be looked at, then the rest is what was seen before; "" = it could.
        zookeeper_ms: In which ZooKeeper answered a sync.
        log_count: All logs; those beyond the bound are not looked at.

    """

    at_ms: int = 0
    problem: str = ""
    zookeeper_ms: float = 0.0
    bookies: tuple[BookieRow, ...] = ()
    copies: CopiesView | None = None
    logs: tuple[LogRow, ...] = ()
    log_count: int = 0
    tasks: tuple[TasksView, ...] = ()
    findings: tuple[FindingRow, ...] = ()
    warnings: tuple[ConsoleWarning, ...] = ()


def changed_sections(before: ConsoleView, after: ConsoleView) -> set[str]:
    """Return which parts of the page are not as they were.

    How old a state is grows while nothing happens: that alone is no change, the page counts it on by itself.
    """
    changed = {name for name in ("bookies", "copies", "tasks", "findings", "warnings") if _differs(before, after, name)}
    if before.log_count != after.log_count or list(map(_calm, before.logs)) != list(map(_calm, after.logs)):
        changed.add("logs")
    if before.problem != after.problem:
        changed.add("warnings")
    return changed


def _differs(before: ConsoleView, after: ConsoleView, name: str) -> bool:
    return bool(getattr(before, name) != getattr(after, name))


def _calm(log: LogRow) -> LogRow:
    replicas = tuple(msgspec.structs.replace(one, lag_ms=min(one.lag_ms, 0)) for one in log.replicas)
    return msgspec.structs.replace(log, replicas=replicas)
