"""Metadata that the driver has read and hands to tasks: tasks have no metadata store to ask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from connectors.source.layouts import LayoutAccess
from connectors.source.look import LogAccess
from ledger.core.metadata import DigestType, LedgerMetadata


class SourceAccess(LogAccess, LayoutAccess, Protocol):
    """Access of subjects to the cluster; `access.DriverAccess` is the real one."""

    def logs(self) -> list[str]:
        """Return the names of all logs, ascending."""
        ...

    def former_names(self, log: str) -> tuple[str, list[str]]:
        """Return the id of a log, 32 hex digits, and the names that it had."""
        ...

    def present_name(self, log: str) -> str | None:
        """Return the name that the log has now which had this one; None = none is known, or it is gone."""
        ...

    def addresses(self, bookie_ids: frozenset[str]) -> dict[str, tuple[str, int]]:
        """Return where bookies listen, by their ids."""
        ...


class TaskMetadata(msgspec.Struct, frozen=True):
    """All that tasks need to know of some ledgers.

    Attributes:
        metadata: By ledger id; without passwords, unless they make the digests.
        addresses: Host and port by bookie id.

    """

    metadata: dict[int, LedgerMetadata]
    addresses: dict[str, tuple[str, int]]


def task_metadata(metadata: Mapping[int, LedgerMetadata], access: SourceAccess) -> TaskMetadata:
    """Return what tasks need to read these ledgers."""
    # For look-ups: the order does not matter.
    bookies = frozenset(b for found in metadata.values() for segment in found.segments for b in segment.bookies)
    stripped = {ledger_id: _stripped(found) for ledger_id, found in metadata.items()}
    return TaskMetadata(stripped, access.addresses(bookies) if bookies else {})


def _stripped(metadata: LedgerMetadata) -> LedgerMetadata:
    """Leave out what tasks do not need: the password, unless it makes the digest."""
    if metadata.digest_type == DigestType.HMAC:
        return metadata
    return msgspec.structs.replace(metadata, password=b"", custom={})
