"""Gates: limits that hold for more than one worker, and what is parked on them.

A line or a class that meets a closed gate is parked on that one gate and costs nothing until the gate wakes it. Which
of several closed gates it meets does not matter: woken, it is looked at again, and parks on the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from broker.core.scheduling.classes import TaskClass
    from broker.core.scheduling.lines import Line

__all__ = ["Gate", "GateKind"]

GateKind = Literal["tenant-limit", "tenant-type-limit", "resource", "held"]


class Gate:
    """An amount that may be in use at once.

    Attributes:
        kind: The word of `Explanation.reason` for what waits here.
        resource: Its name, for a gate of that kind.
        tenant: Only this tenant's use counts; "" = any.
        type: Only this type's use counts; "" = any.
        limit: Most in use at once; None = none. A hold is a limit of 0 of which nothing is ever in use.
        used: In use. Invariant: the sum over what runs, never below 0; it exceeds the limit only if that was lowered.
        parked: What waits for it to open, in the order of its coming. A line or class is in one gate's `parked` at
            most: that of its `parked_on`.

    """

    __slots__ = ("kind", "limit", "parked", "resource", "tenant", "type", "used")

    def __init__(self, kind: GateKind, *, resource: str = "", tenant: str = "", task_type: str = "") -> None:
        self.kind: GateKind = kind
        self.resource = resource
        self.tenant = tenant
        self.type = task_type
        self.limit: int | None = None
        self.used = 0
        self.parked: dict[Line | TaskClass, None] = {}

    def admits(self, amount: int) -> bool:
        """Tell whether so much more may be in use."""
        return self.limit is None or self.used + amount <= self.limit
