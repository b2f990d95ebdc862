"""Progress of a session's streams for Prometheus and for a collector: one call attaches a listener.

    from connectors.source.listener import serve_progress

    with serve_progress(spark, port=9464):
        frame.writeStream.queryName("orders to the lake")…

Then http://127.0.0.1:9464/metrics has the metrics of `connectors.source.telemetry`, and a collector is told them if
this process tells metrics: with RSM_OTLP_URL and RSM_OTLP_METRICS_S, or as the program has said by `start_telemetry`.
It needs `prometheus_client` (``pip install 'rsm-spark[server]'``) in the process that calls it, and nowhere else.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Final, Self

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.exposition import generate_latest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from connectors.errors import SessionSetupError
from connectors.source.telemetry import StreamTelemetry
from connectors.source.traced_batches import SERVICE, is_telemetry_free
from ledger.telemetry import start_from_environment
from ledger.telemetry.start import metrics_period_s, tell_metrics
from rsm_spark.runtime.told_counts import ToldCounts

_LOOPBACK: Final = "127.0.0.1"


class ProgressListener(StreamingQueryListener):
    """Hands what Spark tells of its queries to a `StreamTelemetry`.

    Args:
        telemetry: Keeps the figures.

    """

    def __init__(self, telemetry: StreamTelemetry) -> None:
        self._telemetry = telemetry

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Note a query that has started."""
        self._telemetry.begin(str(event.id), event.name, time.time())

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Note what a query has done."""
        self._telemetry.note(json.loads(event.progress.json), time.time())

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Note that a query has nothing to do."""
        self._telemetry.idle(str(event.id), time.time())

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        self._telemetry.end(str(event.id), has_failed=event.exception is not None)


class ProgressServer:
    """Tells the progress of a session's streams until it is closed; `serve_progress` makes it.

    Attributes:
        url: Where Prometheus finds the metrics; "" = nowhere.

    """

    def __init__(self, spark: SparkSession, port: int | None) -> None:
        telemetry = StreamTelemetry()
        registry = CollectorRegistry()
        registry.register(telemetry)
        registry.register(ToldCounts())
        if is_telemetry_free():
            start_from_environment(SERVICE)
        every_s = metrics_period_s()
        if port is None and not every_s:
            raise SessionSetupError(
                "nobody would hear of the progress of streams: set RSM_OTLP_URL and RSM_OTLP_METRICS_S, or give a port"
            )
        self.url = ""
        self._server = None
        if port is not None:
            try:
                self._server, self._thread = start_http_server(port, addr=_LOOPBACK, registry=registry)
            except OSError as error:
                raise SessionSetupError(
                    f"cannot serve the progress of streams on {_LOOPBACK}:{port}: {error}"
                ) from error
            self.url = f"http://{_LOOPBACK}:{self._server.server_port}/metrics"
        self._push = _ProgressPush(lambda: generate_latest(registry), every_s) if every_s else None
        self._spark = spark
        self._listener = ProgressListener(telemetry)
        spark.streams.addListener(self._listener)

    def close(self) -> None:
        """Stop listening and telling; a collector is told once more before."""
        self._spark.streams.removeListener(self._listener)
        if self._push is not None:
            self._push.close()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _ProgressPush:
    """Thread that tells a page each so many seconds: a driver has no event loop."""

    def __init__(self, page: Callable[[], bytes], every_s: float) -> None:
        self._page = page
        self._every_s = every_s
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rsm-progress", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.wait(self._every_s):
            tell_metrics(self._page())

    def close(self) -> None:
        self._ends.set()
        self._thread.join()
        tell_metrics(self._page())


def serve_progress(spark: SparkSession, *, port: int | None = 0) -> ProgressServer:
    """Attach a listener to a session, serve what it hears on this machine, and push it if this process tells metrics.

    Args:
        spark: A session; queries that it started before are heard from their next progress on.
        port: 0 = any free one, see `ProgressServer.url`; None = it is pushed alone.

    Raises:
        SessionSetupError: The port is taken, or nobody would hear.
        UsageError: The environment says wrongly where metrics are pushed.

    """
    return ProgressServer(spark, port)
