"""A user's function that gives tasks their group, priority and resources as they come in."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from broker.machine.commands import TaskSpec
from broker.machine.faults import number_fault, resources_fault
from broker.machine.limits import GROUP_MAX, PRIORITY_MAX
from ledger.decoding import convert


class Mapped(msgspec.Struct, frozen=True):
    """Answer of a mapper about a task; None = as it was submitted."""

    group: int | None = None
    priority: int | None = None
    resources: dict[str, int] | None = None


Mapper = Callable[[str, str, TaskSpec], Mapped | None]
"""A user's function of (tenant, type, task): called once a task, where it is decided; what it says is logged."""


def map_task(mapper: Mapper, tenant: str, spec: TaskSpec) -> tuple[int | None, int | None, dict[str, int]] | str:
    """Return (group, priority, resources) of a task, or a sentence that says why it is refused.

    Whatever the function does, nothing of it comes out of here but these.
    """
    try:
        mapped = mapper(tenant, spec.type, spec)
        if mapped is None:
            return spec.group, spec.priority, spec.resources
        mapped = convert(mapped, Mapped, from_attributes=True)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - it is the user's
        return f"{type(error).__name__}: {error}"
    group = spec.group if mapped.group is None else mapped.group
    priority = spec.priority if mapped.priority is None else mapped.priority
    resources = spec.resources if mapped.resources is None else mapped.resources
    return (
        ("" if group is None else number_fault("group", group, 1, GROUP_MAX))
        or ("" if priority is None else number_fault("priority", priority, -PRIORITY_MAX, PRIORITY_MAX))
        or resources_fault(resources, low=0)
        or (group, priority, resources)
    )
