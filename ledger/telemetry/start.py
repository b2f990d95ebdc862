"""Telemetry of this process: begun by its settings, ended with it."""

from __future__ import annotations

import atexit
import os
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ledger.errors import UsageError
from ledger.telemetry.settings import OTLP_URL_VARIABLE, TRACE_RATE_VARIABLE, TelemetrySettings
from ledger.telemetry.tracing import Tracer, install_tracer

if TYPE_CHECKING:
    # It brings HTTP's client, which a process that traces nothing does without.
    from ledger.telemetry.exporter import SpanExporter

_STOP_S = 2.0
_exporter: SpanExporter | None = None


def start_telemetry(
    settings: TelemetrySettings, service: str, instance: str = "", environment: Mapping[str, str] = os.environ
) -> None:
    """Trace from now on, and send the spans until this process ends; without an address nothing is done.

    A second call takes the place of the first.

    Args:
        settings: Where to, and how much.
        service: Kind of process, such as "rsm-store".
        instance: Which of them, such as the id of a replica; "" = by host and process.
        environment: Has the variables of a collector.

    Raises:
        UsageError: The extra `otel` is not installed, or the address is wrong.

    """
    global _exporter  # noqa: PLW0603 - one of a process, as its log is
    if not settings.otlp_url:
        return
    stop_telemetry()
    from ledger.telemetry.exporter import SpanExporter  # noqa: PLC0415 - most processes trace nothing
    from ledger.telemetry.otlp_collector import OtlpCollector  # noqa: PLC0415

    try:
        from ledger.telemetry.otlp import encode_spans, rejected_spans  # noqa: PLC0415 - of an extra
    except ModuleNotFoundError as error:
        raise UsageError(
            f"--otlp-url needs {error.name}, which is not installed: pip install 'rsm-spark[otel]'"
        ) from None
    host, pid = socket.gethostname(), os.getpid()
    resource: dict[str, str | int | float | bool] = {
        "service.namespace": "rsm-spark",
        "service.name": service,
        "service.instance.id": instance or f"{host}:{pid}",
        "host.name": host,
        "process.pid": pid,
    }
    collector = OtlpCollector(settings.otlp_url, environment, _STOP_S)
    exporter = SpanExporter(collector, resource, encode_spans, rejected_spans, settings.queue_max)
    exporter.start()
    install_tracer(Tracer(settings.trace_rate, exporter.offer))
    _exporter = exporter
    atexit.register(stop_telemetry)


def stop_telemetry() -> None:
    """Trace no more, and send what waits, for two seconds at most."""
    global _exporter
    exporter, _exporter = _exporter, None
    install_tracer(None)
    atexit.unregister(stop_telemetry)
    if exporter is not None:
        exporter.stop(_STOP_S)


def span_counts() -> dict[str, int]:
    """Return what became of the spans of this process: see `SpanExporter.counts`; {} = it does not trace."""
    return {} if _exporter is None else dict(_exporter.counts)


def start_from_environment(service: str, environment: Mapping[str, str] = os.environ) -> None:
    """Do the same as RSM_OTLP_URL and RSM_TRACE_RATE say, for a command or a program.

    Raises:
        UsageError: See `start_telemetry`; or the share is none.

    """
    url = environment.get(OTLP_URL_VARIABLE)
    if not url:
        return
    told = environment.get(TRACE_RATE_VARIABLE)
    try:
        rate = float(told) if told else TelemetrySettings().trace_rate
    except ValueError:
        rate = -1.0
    if not 0 <= rate <= 1:
        raise UsageError(f"environment: {TRACE_RATE_VARIABLE}={told}: a share from 0 to 1 is needed")
    start_telemetry(TelemetrySettings(otlp_url=url, trace_rate=rate), service, environment=environment)
