"""Options that many commands have: where the cluster is, and what every process of it takes."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ledger.logs import LOG_FORMAT_VARIABLE, LOG_LEVEL_VARIABLE, configure_logs
from ledger.options import Option
from ledger.process_guard import STALL_S

Json = Annotated[bool, Option("Print JSON, one object a line.")]


class MetadataOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a command that only needs to find a cluster."""

    metadata_uri: Annotated[
        str | None,
        Option(
            "ZooKeeper's servers, path of the ledgers: zk+hierarchical://host:port;host:port/ledgers",
            variables=("RSM_METADATA_URI",),
            shown="zk+hierarchical://127.0.0.1:2181/ledgers",
        ),
    ] = None


class ClusterOptions(MetadataOptions, frozen=True, kw_only=True):
    """Options of a command that asks a cluster."""

    json: Json = False


class ProcessOptions(ClusterOptions, frozen=True, kw_only=True):
    """Options of a command that runs until it is ended."""

    stall_s: Annotated[
        float,
        Option(
            "End this process when its event loop does nothing for this time (ten times this at the start); 0 = never.",
            ge=0,
        ),
    ] = STALL_S


class LoggingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of what a process writes to standard error."""

    log_level: Annotated[str, Option("debug, info, warning, error.", variables=(LOG_LEVEL_VARIABLE,))] = "warning"
    log_format: Annotated[str, Option("text, or json: one object a line.", variables=(LOG_FORMAT_VARIABLE,))] = "text"

    def apply(self) -> None:
        """Have it written.

        Raises:
            UsageError: There is no such level or format.

        """
        configure_logs(self.log_level, self.log_format)
