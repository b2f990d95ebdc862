"""Settings of a gateway of logs."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ledger.errors import UsageError
from ledger.http.api_settings import ApiSettings
from ledger.options import Option
from ledger.path_units import PATH


class GatewayHttpSettings(ApiSettings, frozen=True, kw_only=True):
    """Settings of the gateway's HTTP server."""

    principals: Annotated[
        str | None, Option("File of principals: who may do what. Nobody else is answered.", unit=PATH)
    ] = None


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one gateway.

    Attributes:
        open_s: In which a log has to be taken over, else the caller is told to come again.
        append_s: In which an append has to be confirmed, else its caller is told to send it again.
        page_bytes: Payload bytes of a page of records, and one entry more.

    Raises:
        UsageError: A value is out of its bounds.

    """

    http: GatewayHttpSettings = GatewayHttpSettings()
    grpc_port: Annotated[
        int | None,
        Option("Port that serves the same over gRPC, where HTTP is served; 0 = any that is free.", ge=0, le=65535),
    ] = None
    grpc_advertise: Annotated[
        str, Option("Address that gRPC's clients are told.", metavar="HOST:PORT", shown="where it listens")
    ] = ""
    logs_max: Annotated[int, Option("Most logs and partitions that this gateway writes at once.", ge=1)] = 1_000
    idle_s: Annotated[float, Option("A log to which nobody has appended for this time is let go of.", ge=1)] = 300.0
    log_bytes_max: Annotated[
        int, Option("Bytes that wait to be appended to one log; who sends more is told to wait.", ge=1024)
    ] = 32 * 1024 * 1024
    owner_part: Annotated[float, Option("Largest part of these bytes that one principal has.")] = 0.5
    producer_ttl_s: Annotated[
        float, Option("A producer that has appended nothing for this time is forgotten.", ge=1)
    ] = 7 * 86_400.0
    open_s: float = 15.0
    append_s: float = 30.0
    page_bytes: int = 4 * 1024 * 1024

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if not 0 < self.owner_part <= 1:
            raise UsageError(f"--owner-part {self.owner_part:g}: a part is more than 0, and 1 at most; a half is 0.5")
