"""View of a cluster at one moment, as the console's page gets it. Times are ms since 1970; 0 = never, or not known."""

from __future__ import annotations

import msgspec

SECTIONS = ("bookies", "placement", "audit", "cookies", "copies", "logs", "tasks", "findings", "warnings", "history")
"""Parts of the page that change by themselves; an event names the part that did."""
_TOLD_OTHERWISE = frozenset({"logs", "history"})


class BookieRow(msgspec.Struct, frozen=True):
    """One bookie: its state is "writable", "read-only", "draining" or "missing"; `problem` says what is wrong.

    Region, zone and rack are what the cluster's placement rule says of it; "" = nobody said.
    """

    bookie_id: str
    state: str
    total_bytes: int | None
    free_bytes: int | None
    ledger_count: int
    problem: str = ""
    region: str = ""
    zone: str = ""
    rack: str = ""


class MisplacedRow(msgspec.Struct, frozen=True):
    """Ledger that breaks the placement rule: its first segments that do, by their first entries, and how many do."""

    ledger_id: int
    first_entries: tuple[int, ...]
    segment_count: int


class PlacementView(msgspec.Struct, frozen=True, kw_only=True):
    """Placement rule of the cluster, and what breaks it.

    Attributes:
        rule: In words; "" = there is none.
        is_strict: Rather no ledger than one against it.
        unplaced: Bookies that serve, and of which nobody said where they stand; the first so many.
        unplaced_count: All of them.
        ledger_count: Ledgers that were looked at.
        misplaced: Those that break the rule; the first so many.
        misplaced_count: All of them.
        problem: Why the rule is not known; "" = it is.

    """

    rule: str = ""
    is_strict: bool = False
    unplaced: tuple[str, ...] = ()
    unplaced_count: int = 0
    ledger_count: int = 0
    misplaced: tuple[MisplacedRow, ...] = ()
    misplaced_count: int = 0
    problem: str = ""


class AuditRow(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of look at all ledgers: "audit" reads their metadata, "check" asks the bookies what they hold.

    Attributes:
        by: Who made the last one; "" = there was none yet.
        found: What it has found, in words.
        lost: Bookies that were lost then.
        drained: Bookies that were to be drained then.
        running_by: Who makes one now; "" = nobody.
        running_goes_on: It is made by who audits now; if not, it was broken off.
        problem: Why the last attempt was put off; "" = it was not.

    """

    kind: str
    by: str = ""
    began_ms: int = 0
    ended_ms: int = 0
    ledger_count: int = 0
    found: str = ""
    found_nothing: bool = True
    lost: tuple[str, ...] = ()
    drained: tuple[str, ...] = ()
    running_by: str = ""
    running_ms: int = 0
    running_seen: int = 0
    running_count: int = 0
    running_goes_on: bool = False
    problem: str = ""


class AuditView(msgspec.Struct, frozen=True, kw_only=True):
    """Audits of all ledgers; `auditor` = who makes them, "" = nobody, `checked_ms` = when a check last ended."""

    auditor: str
    is_enabled: bool
    checked_ms: int
    looks: tuple[AuditRow, ...]


class CookieRow(msgspec.Struct, frozen=True, kw_only=True):
    """Cookie of a bookie: the disks to which its id is tied."""

    bookie_id: str
    serves: bool
    journal: str
    ledgers: tuple[str, ...]
    problem: str


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
    """One thing that the doctor looked at; `grade` is "good", "note" or "bad", `log` is the one it is of, if any."""

    what: str
    grade: str
    seen: str
    advice: str = ""
    log: str = ""


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
        log: Log that it is of; "" = it tells of the cluster, or of tasks.

    """

    grade: str
    about: str
    cause: str
    advice: str
    command: str
    view: str
    since_ms: int = 0
    log: str = ""


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
    placement: PlacementView | None = None
    audit: AuditView | None = None
    cookies: tuple[CookieRow, ...] = ()
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
    changed = {name for name in SECTIONS if name not in _TOLD_OTHERWISE and _differs(before, after, name)}
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
