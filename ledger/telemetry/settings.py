"""Settings of telemetry: where it goes, and how much of it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ledger.options import Option

OTLP_URL_VARIABLE = "RSM_OTLP_URL"
TRACE_RATE_VARIABLE = "RSM_TRACE_RATE"
OTLP_METRICS_VARIABLE = "RSM_OTLP_METRICS_S"
OTLP_LOGS_VARIABLE = "RSM_OTLP_LOGS"


class TelemetrySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of what a process tells a collector.

    Attributes:
        otlp_url: Of the collector, as OTLP over HTTP has it: `/v1/traces` and so on are added; None = nothing is told.
        trace_rate: Share of the traces that begin in this process and are told; those that begin elsewhere say
            themselves whether they are.
        otlp_metrics_s: What `/metrics` says is told this often; 0 = never.
        otlp_logs: Lines of the log are told.
        queue_max: Spans that may wait to be sent; more are dropped, and counted.

    """

    otlp_url: Annotated[
        str | None,
        Option(
            "Send traces to the collector at this address by OTLP over HTTP, such as http://127.0.0.1:4318.",
            variables=(OTLP_URL_VARIABLE,),
            metavar="URL",
        ),
    ] = None
    trace_rate: Annotated[
        float,
        Option("Share of the traces that begin here and are sent.", ge=0, le=1, variables=(TRACE_RATE_VARIABLE,)),
    ] = 0.01
    otlp_metrics_s: Annotated[
        float,
        Option(
            "Send that collector what /metrics says, each so many seconds; 0 = never.",
            ge=0,
            variables=(OTLP_METRICS_VARIABLE,),
        ),
    ] = 0.0
    otlp_logs: Annotated[bool, Option("Send that collector the lines of the log.", variables=(OTLP_LOGS_VARIABLE,))] = (
        False
    )
    queue_max: int = 8_192
