"""Pages of an application's driver, as far as they say how far it is: Spark serves them as JSON beside its web page."""

from __future__ import annotations

import http.client
import re
import socket

import msgspec

from ledger.decoding import json_decoder

_ANSWER_S = 2.0
_BYTES_MAX = 1024 * 1024
_ID = re.compile(r"[A-Za-z0-9_.-]{1,100}", re.ASCII)


class _ShownApplication(msgspec.Struct):
    id: str


class _ShownJob(msgspec.Struct, rename="camel"):
    num_tasks: int
    num_completed_tasks: int
    num_skipped_tasks: int = 0
    job_tags: list[str] = []


class DriverState(msgspec.Struct, frozen=True):
    """Progress of an application.

    Attributes:
        application_id: Spark's.
        jobs: That run.
        done: Tasks of these that have ended, or were not needed.
        tasks: Tasks of these.

    """

    application_id: str
    jobs: int
    done: int
    tasks: int

    @property
    def fraction(self) -> float:
        """Share of the tasks of running jobs that has ended; -1 = no job runs."""
        return min(max(self.done / self.tasks, 0.0), 1.0) if self.tasks > 0 else -1.0

    @property
    def words(self) -> str:
        """The same for people."""
        if not self.jobs:
            return "no job runs"
        return f"{self.jobs} {'job' if self.jobs == 1 else 'jobs'}, {self.done:,} of {self.tasks:,} tasks"


def free_port() -> int:
    """Return a port that nobody has just now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def driver_state(host: str, port: int, *, tag: str = "") -> DriverState | None:
    """Ask a driver; it blocks for some seconds at most. None = nobody answers, or not as Spark does.

    Args:
        host: Of the driver.
        port: Of its pages.
        tag: Beginning of a tag of the jobs that count; "" = all do.

    Who answers may be anybody who has that port: what is taken of it is a name of plain letters, and numbers.
    """
    connection = http.client.HTTPConnection(host, port, timeout=_ANSWER_S)
    try:
        (shown,) = json_decoder(list[_ShownApplication]).decode(_got(connection, "/api/v1/applications"))
        if not _ID.fullmatch(shown.id):
            return None
        path = f"/api/v1/applications/{shown.id}/jobs?status=running"
        jobs = json_decoder(list[_ShownJob]).decode(_got(connection, path))
    except (OSError, http.client.HTTPException, msgspec.MsgspecError, ValueError):
        return None
    finally:
        connection.close()
    if tag:
        jobs = [job for job in jobs if any(one.startswith(tag) for one in job.job_tags)]
    done = sum(job.num_completed_tasks + job.num_skipped_tasks for job in jobs)
    return DriverState(shown.id, len(jobs), done, sum(job.num_tasks for job in jobs))


def _got(connection: http.client.HTTPConnection, path: str) -> bytes:
    connection.request("GET", path, headers={"Accept": "application/json"})
    answer = connection.getresponse()
    content = answer.read(_BYTES_MAX + 1)
    if answer.status != http.client.OK or len(content) > _BYTES_MAX:
        raise ValueError(f"status {answer.status}, {len(content)} bytes or more")
    return content
