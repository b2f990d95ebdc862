"""A user's mapper, by the name that `--mapper` gives it; see `broker.machine.mapping`."""

from __future__ import annotations

from broker.machine.mapping import Mapper
from ledger.errors import UsageError
from ledger.named_object import load_named


def load_mapper(name: str) -> Mapper:
    """Return the function of a name, "package.module:function"; modules in the working directory are found too.

    Raises:
        UsageError: There is no such module or function, or importing it fails.

    """
    found = load_named(name, given="--mapper", example="rules.priorities:of_task")
    if not callable(found):
        raise UsageError(f"--mapper {name}: it is no function, but a {type(found).__name__}")
    mapper: Mapper = found
    return mapper
