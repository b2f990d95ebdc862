"""One watch of one replica."""

from __future__ import annotations

from collections.abc import AsyncIterator

from rsm_spark.transport.security import Security
from rsm_spark.transport.told_stream import ToldRequest, told_by
from rsm_spark.transport.watch_codec import WATCH_METHOD, ReceivedChanges, WatchRequest, decode_changes, encode_watch


def watch_replica(
    address: str, request: WatchRequest, security: Security, *, framed: str = "", silence_s_max: float
) -> AsyncIterator[ReceivedChanges]:
    """Iterate over what one replica sends; ends only with an error; see `told_by`.

    Args:
        address: "host:port".
        request: See `watch.proto`.
        security: TLS and token.
        framed: "host:port" of its framed port; "" = over gRPC.
        silence_s_max: A replica that says nothing for so long is given up: it is cut off, or paused.

    """
    asked = ToldRequest(WATCH_METHOD, encode_watch(request), "watch", request.log, request.from_revision)
    return told_by(address, asked, decode_changes, security, framed=framed, silence_s_max=silence_s_max)
