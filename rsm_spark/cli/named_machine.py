"""A state machine of a user's own, by the name that a command is given."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ledger.errors import UsageError
from ledger.named_object import fault_of, load_named
from ledger.options import Option
from rsm_spark.core.machine import StateMachine

ModulePath = Annotated[
    Path | None,
    Option("Folder in which MODULE is looked for too.", metavar="DIR", shown="the working directory"),
]
"""Option of every command that takes a machine by name."""


def load_machine(name: str, folder: Path | None) -> StateMachine:
    """Return the machine of "module:Class", empty; `folder` is a `ModulePath`.

    Raises:
        UsageError: There is none of this name, importing or making it fails, or it is no state machine.

    """
    found = load_named(name, given="MODULE:CLASS", example="bank:Bank", folder=folder)
    try:
        machine = found() if isinstance(found, type) else found
    except Exception as error:  # whatever it is, it is the user's
        raise UsageError(f"MODULE:CLASS {name}: {fault_of(error)}") from error
    if not isinstance(machine, StateMachine):
        raise UsageError(f"MODULE:CLASS {name}: this is no state machine, but a {type(machine).__name__}")
    return machine
