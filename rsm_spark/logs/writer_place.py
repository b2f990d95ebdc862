"""Address of a writer, told to whoever asks who writes a log."""

from __future__ import annotations

from typing import NamedTuple


class WriterPlace(NamedTuple):
    """Address at which others reach a writer.

    Attributes:
        http: "host:port" of its HTTP API.
        is_tls: Whether that is encrypted.
        grpc: "host:port" of the same over gRPC, as encrypted; "" = it is not served.

    """

    http: str
    is_tls: bool
    grpc: str = ""
