"""Progress of a session's streams for Prometheus: one call attaches a listener and serves what it hears.

    from connectors.source.listener import serve_progress

    with serve_progress(spark, port=9464):
        frame.writeStream.queryName("orders to the lake")…

Then http://127.0.0.1:9464/metrics has the metrics of `connectors.source.telemetry`. It needs `prometheus_client`
(``pip install 'rsm-spark[server]'``) in the process that calls it, and nowhere else.
"""

from __future__ import annotations

import json
import time
from typing import Self

from prometheus_client import CollectorRegistry, start_http_server
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

_LOOPBACK = "127.0.0.1"


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
    """Serves the progress of a session's streams until it is closed; `serve_progress` makes it.

    Attributes:
        url: Where Prometheus finds the metrics.

    """

    def __init__(self, spark: SparkSession, port: int) -> None:
        telemetry = StreamTelemetry()
        registry = CollectorRegistry()
        registry.register(telemetry)
        try:
            self._server, self._thread = start_http_server(port, addr=_LOOPBACK, registry=registry)
        except OSError as error:
            raise SessionSetupError(f"cannot serve the progress of streams on {_LOOPBACK}:{port}: {error}") from error
        self._spark = spark
        self._listener = ProgressListener(telemetry)
        spark.streams.addListener(self._listener)
        self.url = f"http://{_LOOPBACK}:{self._server.server_port}/metrics"

    def close(self) -> None:
        """Stop listening and serving."""
        self._spark.streams.removeListener(self._listener)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve_progress(spark: SparkSession, *, port: int = 0) -> ProgressServer:
    """Attach a listener to a session and serve what it hears, on this machine only.

    Args:
        spark: A session; queries that it started before are heard from their next progress on.
        port: 0 = any free one, see `ProgressServer.url`.

    Raises:
        SessionSetupError: The port is taken.

    """
    return ProgressServer(spark, port)
