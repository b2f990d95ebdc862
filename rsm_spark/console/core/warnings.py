"""Warnings of the console: what is wrong, and what to do about it. Pure.

    finder = WarningFinder()
    view = replace(view, warnings=finder.warnings(view))

A follower is behind when it has not moved for a while although there is something to read, or when it lacks very many
records: a follower that is a little behind and moves is as it should be.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import msgspec

from rsm_spark.console.core.view import ConsoleView, ConsoleWarning, LogRow, TasksView

STUCK_MS = 30_000
"""A replica that is behind and has not moved for this time stands."""
CONSUMER_STUCK_MS = 15 * 60_000
"""The same of a consumer: batches of a quarter of an hour are usual."""
UNSERVED_MS = 10_000
"""Tasks that nobody serves for this time: a worker that is started anew takes less."""
BEHIND_MAX = 100_000
"""Records by which a replica may be behind while it moves."""
OF_A_LOG_MAX = 20
"""Warnings of one log that are kept, the worst first."""
_SHOWN = 3


class WarningFinder:
    """See the module: remembers since when something is so, and when who has moved last."""

    def __init__(self) -> None:
        self._moved: dict[tuple[str, str], tuple[int, int]] = {}  # (log, who) -> revision, since when
        self._since: dict[str, int] = {}  # what is wrong -> when it was first seen

    def warnings(self, view: ConsoleView) -> tuple[ConsoleWarning, ...]:
        """Return what there is to warn of, the worst first; those that go on keep their beginning."""
        moved: dict[tuple[str, str], tuple[int, int]] = {}
        found = [*_of_metadata(view), *_of_copies(view), *_of_bookies(view), *_of_placement(view)]
        for log in view.logs:
            of_log = [*_of_log(log), *self._of_followers(log, view.at_ms, moved)]
            of_log.sort(key=_rank)
            found += [msgspec.structs.replace(one, log=log.log) for one in of_log[:OF_A_LOG_MAX]]
        for tasks in view.tasks:
            found += self._of_tasks(tasks, view.at_ms, moved)
        self._moved = moved
        found.sort(key=_rank)
        since = {one.about: self._since.get(one.about, view.at_ms) for one in found}
        self._since = since
        return tuple(msgspec.structs.replace(one, since_ms=since[one.about]) for one in found)

    def _of_followers(
        self, log: LogRow, now_ms: int, moved: dict[tuple[str, str], tuple[int, int]]
    ) -> Iterator[ConsoleWarning]:
        where = _log_view(log)
        for replica in log.replicas:
            if replica.problem:
                continue
            place = replica.revision if replica.behind else -1
            stands_ms = self._stands_ms(log.log, f"replica {replica.replica_id}", place, now_ms, moved)
            name = f"replica {replica.replica_id} of log {log.log}"
            status = f"rsm status --log {shlex.quote(log.log)}"
            if replica.behind and stands_ms >= STUCK_MS:
                cause = f"{name} is {replica.behind:,} records behind, and has not moved for {stands_ms // 1000} s"
                yield ConsoleWarning("bad", f"stands {name}", cause, "look at its log and its disk", status, where)
            elif replica.behind >= BEHIND_MAX:
                cause = f"{name} is {replica.behind:,} records behind, and moves"
                yield ConsoleWarning(
                    "note", f"behind {name}", cause, "it cannot take over before it has come close", status, where
                )
        for consumer in log.consumers:
            place = consumer.revision if consumer.behind else -1
            stands_ms = self._stands_ms(log.log, f"consumer {consumer.name}", place, now_ms, moved)
            yield from _of_consumer(log, consumer.name, consumer.behind, consumer.lost, stands_ms)

    def _of_tasks(
        self, tasks: TasksView, now_ms: int, moved: dict[tuple[str, str], tuple[int, int]]
    ) -> Iterator[ConsoleWarning]:
        broker, log = f"broker of log {tasks.log}", shlex.quote(tasks.log)
        if tasks.problem:
            cause = f"the tasks of the {broker} are not known: {tasks.problem}"
            command = f"rsm task list --url {shlex.quote(tasks.url)}" if tasks.url else "rsm broker run"
            yield ConsoleWarning("note", f"tasks of {broker}", cause, "", command, "tasks")
        for one in tasks.types:
            unserved = bool(one.waiting) and not one.is_served
            stands_ms = self._stands_ms(tasks.log, f"type {one.type}", 0 if unserved else -1, now_ms, moved)
            if unserved and stands_ms >= UNSERVED_MS:
                cause = f"{one.waiting:,} tasks of type {one.type} wait at the {broker}, and no worker runs that type"
                command = f"rsm worker run --log {log} --types {shlex.quote(one.type)} --tasks MODULE"
                about = f"type {one.type} at {broker}"
                yield ConsoleWarning("bad", about, cause, "start a worker for it", command, "tasks")

    def _stands_ms(
        self, log: str, who: str, place: int, now_ms: int, moved: dict[tuple[str, str], tuple[int, int]]
    ) -> int:
        """Return for how long somebody has been behind at one place, as far as it was seen; below 0 = it is not."""
        known = self._moved.get((log, who))
        since_ms = known[1] if place >= 0 and known is not None and known[0] == place else now_ms
        moved[log, who] = place, since_ms
        return now_ms - since_ms


def _rank(warning: ConsoleWarning) -> bool:
    return warning.grade != "bad"


def _of_metadata(view: ConsoleView) -> Iterator[ConsoleWarning]:
    if view.problem:
        cause = f"the cluster cannot be looked at: {view.problem}"
        yield ConsoleWarning("bad", "cluster", cause, "what is shown was seen before", "rsm doctor", "overview")


def _of_copies(view: ConsoleView) -> Iterator[ConsoleWarning]:
    copies = view.copies
    if copies is None:
        return
    if not copies.is_whole:
        if copies.unreadable_count:
            advice = "bring a bookie back that held what nobody who serves has, with its folder"
        elif not copies.auditor:
            advice = "nobody copies them: start auto-recovery, or a bookie without --no-autorecovery"
        elif not copies.is_enabled:
            advice = "auto-recovery is switched off: rsm autorecovery enable"
        else:
            advice = "start the bookies that are missing, or wait for auto-recovery"
        command = "rsm autorecovery run" if not copies.auditor else "rsm cluster under-replicated"
        yield ConsoleWarning("bad", "copies", f"copies are missing: {copies.summary}", advice, command, "copies")
    elif not copies.auditor:
        advice = "what is lost from now on is not copied"
        yield ConsoleWarning(
            "note", "auditor", "nobody looks for lost copies", advice, "rsm autorecovery run", "copies"
        )
    elif not copies.is_enabled:
        advice = "what is lost from now on is not copied"
        yield ConsoleWarning(
            "note", "auto-recovery", "auto-recovery is switched off", advice, "rsm autorecovery enable", "copies"
        )


def _of_bookies(view: ConsoleView) -> Iterator[ConsoleWarning]:
    missing = [one for one in view.bookies if one.state == "missing"]
    if missing:
        names = ", ".join(one.bookie_id for one in missing[:_SHOWN]) + (", …" if len(missing) > _SHOWN else "")
        grade = "bad" if any(one.ledger_count for one in missing) else "note"
        verb = "bookies do" if len(missing) > 1 else "bookie does"
        cause = f"{len(missing)} {verb} not serve: {names}"
        yield ConsoleWarning(
            grade, "missing bookies", cause, "start it on its folder", "rsm cluster bookies", "bookies"
        )
    writable = sum(one.state == "writable" for one in view.bookies)
    if view.at_ms and not view.problem and writable < 2:
        cause = f"{writable} bookies take entries, a log needs two"
        yield ConsoleWarning(
            "bad", "writable bookies", cause, "start bookies, or make room on them", "rsm bookie run", "bookies"
        )


def _of_placement(view: ConsoleView) -> Iterator[ConsoleWarning]:
    placement = view.placement
    if placement is None:
        return
    if placement.problem:
        advice = "bookies are chosen without a rule until it is set again"
        command = "rsm cluster set-placement FILE"
        yield ConsoleWarning(
            "bad", "placement rule", f"the placement rule is not known: {placement.problem}", advice, command, "bookies"
        )
    elif placement.misplaced_count:
        cause = f"{placement.misplaced_count:,} of {placement.ledger_count:,} ledgers break the placement rule"
        advice = "new ledgers of their logs keep it; drain a bookie to have its copies moved"
        yield ConsoleWarning("note", "misplaced ledgers", cause, advice, "rsm cluster placement", "bookies")


def _of_log(log: LogRow) -> Iterator[ConsoleWarning]:
    where, name = _log_view(log), shlex.quote(log.log)
    status = f"rsm status --log {name}"
    if log.problem or log.forgotten_by:
        return
    if not log.leader and not log.is_plain:
        if log.replicas:
            advice = "look at the logs of its replicas: are two bookies writable, may one of them lead?"
            yield ConsoleWarning(
                "bad", f"leader of log {log.log}", f"log {log.log} has no leader", advice, status, where
            )
        else:
            advice = "start a replica; if nobody is to serve it any more, forget it"
            command = f"rsm doctor --forget {name}"
            yield ConsoleWarning(
                "bad", f"replicas of log {log.log}", f"nobody serves log {log.log}", advice, command, where
            )
    for replica in log.replicas:
        if replica.problem and not log.is_plain:
            cause = f"replica {replica.replica_id} of log {log.log} does not answer as it should: {replica.problem}"
            yield ConsoleWarning(
                "bad",
                f"replica {replica.replica_id} of log {log.log}",
                cause,
                "is it running, can this machine reach it?",
                f"rsm status --log {name}",
                where,
            )
    for alarm in log.alarms:
        yield ConsoleWarning(
            "bad",
            f"alarm of log {log.log}: {alarm}",
            f"log {log.log}: {alarm}",
            "see docs/operations.md",
            f"rsm status --log {name}",
            where,
        )


def _of_consumer(log: LogRow, name: str, behind: int, lost: int, stands_ms: int) -> Iterator[ConsoleWarning]:
    command = f"rsm log consumers list {shlex.quote(log.log)}"
    who = f"follower {name} of log {log.log}"
    if lost:
        cause = f"{who} has not read {lost:,} records that were trimmed"
        yield ConsoleWarning(
            "bad", f"lost {who}", cause, "begin it anew from a snapshot, or remove it", command, "followers"
        )
    elif behind and stands_ms >= CONSUMER_STUCK_MS:
        minutes = stands_ms // 60_000
        cause = f"{who} is {behind:,} records behind, and has not moved for {minutes} min"
        yield ConsoleWarning(
            "note", f"stands {who}", cause, "start it, or remove it: the log is kept for it", command, "followers"
        )


def _log_view(log: LogRow) -> str:
    return f"logs/{log.log}"
