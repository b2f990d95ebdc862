"""Which brokers there are and which of them leads: from URLs that were named, or from ZooKeeper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from broker.client.http_wire import Origin, parse_origin
from ledger.errors import LedgerError, UsageError
from rsm_spark.errors import RsmError
from rsm_spark.log.discovery import Discovery

__all__ = ["BrokerDirectory", "FoundBrokers", "NamedBrokers"]


class BrokerDirectory(Protocol):
    """Names the brokers to try, the most promising first."""

    trouble: str
    """Why none was found last, in a few words; "" = some were."""

    async def origins(self) -> list[Origin]:
        """Return them."""
        ...


class NamedBrokers:
    """Always the same brokers.

    Args:
        urls: Of them, at least one.

    Raises:
        UsageError: There is none, or one is no URL.

    """

    def __init__(self, urls: Sequence[str]) -> None:
        self._origins = [parse_origin(url) for url in urls]
        if not self._origins:
            raise UsageError("no broker URL is given: name at least one, such as http://127.0.0.1:7364")
        self.trouble = ""

    async def origins(self) -> list[Origin]:
        """Return them, in the order given."""
        return list(self._origins)


class FoundBrokers:
    """Brokers as the metadata store names them, the leader first.

    Args:
        discovery: Of the broker's log.

    Attributes:
        trouble: Why there was none at the last look.

    """

    def __init__(self, discovery: Discovery) -> None:
        self._discovery = discovery
        self.trouble = "not looked for yet"

    async def origins(self) -> list[Origin]:
        """Return those that are alive and serve HTTP."""
        try:
            leader = await self._discovery.leader()
            members = await self._discovery.members()
        except (LedgerError, RsmError) as error:
            self.trouble = str(error)
            return []
        first = leader[1].replica_id if leader is not None and leader[1] is not None else ""
        members.sort(key=lambda member: member.replica_id != first)
        urls = [url for member in members if (url := str(getattr(member, "http", "") or ""))]
        self.trouble = "" if urls else "no broker that serves HTTP is registered"
        return [parse_origin(url) for url in urls]
