"""Audit of commands that bypass every server: who runs them, what they do, and how it ended."""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import msgspec

from ledger.audit_lines import AuditLine, open_audit_file, tell
from ledger.errors import UsageError
from ledger.operators import Operator
from ledger.options import Option
from ledger.zookeeper.auth import login_of


class AuditOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a command that goes past every server."""

    audit_file: Annotated[
        str | None,
        Option("Append what is done to it, a JSON object a line.", metavar="FILE", variables=("RSM_AUDIT_FILE",)),
    ] = None


def this_operator(reason: str = "") -> Operator:
    """Return who runs this process."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = f"uid {os.getuid()}"
    behind = os.environ.get("SUDO_USER", "")
    name = f"{user}@{socket.gethostname()}{f' for {behind}' if behind and behind != user else ''}"
    try:
        login = login_of()
    except UsageError:
        login = None  # Whoever connects with it says so.
    return Operator(name, "" if login is None else f"{login[0]}:{login[1].partition(':')[0]}", reason)


@contextmanager
def audited_command(audit_file: str | None, action: str, target: str, by: Operator) -> Iterator[None]:
    """Write a line before something is done, and one of what came of it, if there is a file for them.

    Args:
        audit_file: The file; None = nothing is written.
        action: What, as it is typed: "rsm log trim".
        target: On what.
        by: Who.

    Raises:
        UsageError: The file cannot be written; nothing was done.

    """
    if audit_file is None:
        yield
        return
    handler = open_audit_file(audit_file)
    reason = f": {by.reason}" if by.reason else ""
    said = AuditLine(
        principal=by.name, role="operator", source=by.source, action=action, target=f"{target}{reason}", outcome="asked"
    )
    try:
        tell(msgspec.structs.asdict(said))
        try:
            yield
        except BaseException as error:
            failed = f"failed: {str(error) or type(error).__name__}"
            tell(msgspec.structs.asdict(msgspec.structs.replace(said, outcome=failed)))
            raise
        tell(msgspec.structs.asdict(msgspec.structs.replace(said, outcome="done")))
    finally:
        handler.close()
