"""Telemetry of this process: begun by its settings, ended with it."""

from __future__ import annotations

import atexit
import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ledger.errors import UsageError
from ledger.telemetry.settings import (
    OTLP_LOGS_VARIABLE,
    OTLP_METRICS_VARIABLE,
    OTLP_URL_VARIABLE,
    TRACE_RATE_VARIABLE,
    TelemetrySettings,
)
from ledger.telemetry.tracing import Tracer, Value, install_tracer

if TYPE_CHECKING:
    # It brings HTTP's client, which a process that tells nothing does without.
    from ledger.telemetry.running import RunningTelemetry

_STOP_S = 2.0
_SWITCH = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_STARTED_NS = time.time_ns()
_running: RunningTelemetry | None = None


def start_telemetry(
    settings: TelemetrySettings, service: str, instance: str = "", environment: Mapping[str, str] = os.environ
) -> None:
    """Trace from now on, and send what is told until this process ends; without an address nothing is done.

    A second call takes the place of the first.

    Args:
        settings: Where to, and how much.
        service: Kind of process, such as "rsm-store".
        instance: Which of them, such as the id of a replica; "" = by host and process.
        environment: Has the variables of a collector.

    Raises:
        UsageError: The extra `otel` is not installed, the address is wrong, or it is missing.

    """
    global _running  # noqa: PLW0603 - one of a process, as its log is
    if not settings.otlp_url:
        if settings.otlp_metrics_s or settings.otlp_logs:
            raise UsageError("--otlp-metrics-s and --otlp-logs need --otlp-url, the address of a collector")
        return
    stop_telemetry()
    try:
        from ledger.telemetry.running import RunningTelemetry  # noqa: PLC0415 - of an extra; most processes tell nothing
    except ModuleNotFoundError as error:
        raise UsageError(
            f"--otlp-url needs {error.name}, which is not installed: pip install 'rsm-spark[otel]'"
        ) from None
    host, pid = socket.gethostname(), os.getpid()
    resource: dict[str, Value] = {
        "service.name": service,
        "service.instance.id": instance or f"{host}:{pid}",
        "host.name": host,
        "process.pid": pid,
    }
    _running = RunningTelemetry(settings, resource, environment, _STOP_S)
    install_tracer(Tracer(settings.trace_rate, _running.spans.offer))
    atexit.register(stop_telemetry)


def stop_telemetry() -> None:
    """Tell no more, and send what waits, for two seconds at most."""
    global _running
    running, _running = _running, None
    install_tracer(None)
    atexit.unregister(stop_telemetry)
    if running is not None:
        running.stop(_STOP_S)


def telemetry_counts() -> dict[str, dict[str, int]]:
    """Return what became of what this process has told, by kind: see `OtlpExporter.counts`; {} = it tells nothing."""
    return {} if _running is None else _running.counts()


def metrics_period_s() -> float:
    """Return how often `/metrics` is told; 0 = never."""
    return 0.0 if _running is None else _running.metrics_s


def tell_metrics(text: bytes) -> None:
    """Have what `/metrics` says now sent."""
    if _running is not None:
        _running.tell_metrics(text, time.time_ns(), _STARTED_NS)


def start_from_environment(service: str, environment: Mapping[str, str] = os.environ) -> None:
    """Do the same as RSM_OTLP_URL and the other variables say, for a command or a program.

    Raises:
        UsageError: See `start_telemetry`; or a variable has no such value.

    """
    url = environment.get(OTLP_URL_VARIABLE)
    if not url:
        return
    given: dict[str, Any] = {"otlp_url": url}
    for field, name, read, words in (
        ("trace_rate", TRACE_RATE_VARIABLE, _share, "a share from 0 to 1"),
        ("otlp_metrics_s", OTLP_METRICS_VARIABLE, _seconds, "a number of seconds, 0 or more"),
        ("otlp_logs", OTLP_LOGS_VARIABLE, lambda text: _SWITCH[text.lower()], "true or false"),
    ):
        if told := environment.get(name):
            given[field] = _read(name, told, read, words)
    start_telemetry(TelemetrySettings(**given), service, environment=environment)


def _read(name: str, told: str, read: Callable[[str], Any], words: str) -> Any:
    try:
        return read(told)
    except (ValueError, KeyError):
        raise UsageError(f"environment: {name}={told}: {words} is needed") from None


def _share(text: str) -> float:
    share = float(text)
    if not 0 <= share <= 1:
        raise ValueError
    return share


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < float("inf"):
        raise ValueError
    return seconds
