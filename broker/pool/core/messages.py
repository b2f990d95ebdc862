"""Messages between a pool's controller and its workers."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """A worker's first words on a connection.

    Attributes:
        index: Its place in the pool.
        launch: Which start of that place it belongs to: rises from start to start.
        attempt: Which attempt of that start: Spark runs a task again whose executor was lost.
        member: Of this process: random.
        location: Host and process, for people.

    """

    index: int
    launch: int
    attempt: int
    member: str
    location: str = ""


class Report(msgspec.Struct, frozen=True, tag="report"):
    """Report of a worker on itself; sent when it has changed, four times a second at most.

    Attributes:
        is_served: Whether a broker serves it.
        running: Tasks that it runs.
        ended: Tasks that it has run to an end, well or not.
        types: Task types that it has functions for; None = any.
        trouble: Why no broker serves it, as far as known.

    """

    is_served: bool = False
    running: int = 0
    ended: int = 0
    types: list[str] | None = None
    trouble: str = ""


class Left(msgspec.Struct, frozen=True, tag="left"):
    """A worker's last words.

    Attributes:
        why: "" = it was told to, and left in good order.
        is_fault: Started again it would say the same: wrong settings, tasks that cannot be imported.

    """

    why: str = ""
    is_fault: bool = False


class Order(StrEnum):
    """Orders to a worker: WORK begin; DRAIN take nothing more, end what runs, and leave; STOP leave at once."""

    WORK = "work"
    DRAIN = "drain"
    STOP = "stop"


class FromController(msgspec.Struct, frozen=True):
    order: Order


FromMember = Hello | Report | Left
