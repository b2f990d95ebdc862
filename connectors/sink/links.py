"""The way of a query's rows: to the leader of a service, or to the gateways of a plain log."""

from __future__ import annotations

from connectors.sink.gateway_link import GatewayLink
from connectors.sink.link import LeaderLink
from connectors.sink.options import RowKind, SinkOptions


def link_of(options: SinkOptions) -> LeaderLink | GatewayLink:
    """Return the connection of this process.

    Raises:
        MetadataUnavailableError: ZooKeeper does not answer.
        UsageError: An address of a gateway is none.

    """
    return GatewayLink.of_process(options) if options.kind is RowKind.LOG else LeaderLink.of_process(options)
