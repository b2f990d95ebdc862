"""Audited commands: those that change rights, code, holds and limits, whichever door they come by."""

from __future__ import annotations

import msgspec

from broker.machine.commands import (
    BrokerCommand,
    ClearHold,
    DeployCode,
    LimitResource,
    RemoveCode,
    RemoveTenant,
    RemoveWorker,
    SetHold,
    SetTenant,
)
from broker.machine.messages import decode_command, decode_reply
from broker.machine.replies import Refused

_AUDITED = (ClearHold, DeployCode, LimitResource, RemoveCode, RemoveTenant, RemoveWorker, SetHold, SetTenant)
# What is too long to be written down; the record of the command itself has it.
_LEFT_OUT = frozenset({"archive"})


def audit_words(payload: bytes) -> str:
    """Return what a command changes, in words; "" if it is not audited, or none at all."""
    try:
        command: BrokerCommand = decode_command(payload)
    except msgspec.MsgspecError:
        return ""
    if not isinstance(command, _AUDITED):
        return ""
    said = {name: value for name, value in msgspec.structs.asdict(command).items() if name not in _LEFT_OUT}
    return f"{type(command).__name__} {msgspec.json.encode(said).decode()}"


def audit_outcome(reply: bytes) -> str:
    """Return what came of a command, by its reply: "done", or why not."""
    try:
        found = decode_reply(reply)
    except msgspec.MsgspecError:
        return "done"
    return f"refused: {found.refusal}" if isinstance(found, Refused) else "done"
