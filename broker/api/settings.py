"""Settings of a broker's HTTP server."""

from __future__ import annotations

from typing import Annotated

from ledger.http.api_settings import ApiSettings
from ledger.options import Option


class HttpSettings(ApiSettings, frozen=True, kw_only=True):
    """Settings of a broker's HTTP server: those of any API, and more."""

    port: Annotated[
        int, Option("Port of the HTTP API and the dashboard; 0 = any that is free.", name="http_port", ge=0, le=65535)
    ] = 0
    rate_tasks_per_s: Annotated[
        float, Option("Tasks that one tenant submits a second; 0 = no limit.", name="rate_tasks", ge=0)
    ] = 50_000.0
