"""The one address of a cluster: `zk+hierarchical://host:port;host:port/ledgers`."""

from __future__ import annotations

import os
import re
from typing import Self

import msgspec

from ledger.errors import UsageError

DEFAULT_METADATA_URI = "zk+hierarchical://127.0.0.1:2181/ledgers"
METADATA_URI_VARIABLE = "RSM_METADATA_URI"

_URI = re.compile(r"(?P<scheme>[a-z+]+)://(?P<hosts>[^/]+)(?P<root>/[^?#]*)?")
_SCHEMES = ("zk", "zk+null", "zk+hierarchical", "zk+longhierarchical")  # The layout node decides between them.
_PORT_DEFAULT = 2181
_PORT_MAX = 65535


class MetadataUri(msgspec.Struct, frozen=True):
    """A parsed metadata URI.

    Attributes:
        hosts: ZooKeeper servers as "host:port", at least one.
        ledgers_root: BookKeeper's root node, "/ledgers" by default.

    """

    hosts: tuple[str, ...]
    ledgers_root: str = "/ledgers"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a URI.

        Raises:
            UsageError: It is not of the form above.

        """
        matched = _URI.fullmatch(text.strip())
        if matched is None or matched["scheme"] not in _SCHEMES:
            raise UsageError(f"metadata URI {text!r}: expected one like {DEFAULT_METADATA_URI}")
        hosts = tuple(_host(host, text) for host in re.split("[;,]", matched["hosts"]) if host)
        root = (matched["root"] or "").rstrip("/") or "/ledgers"
        if not hosts or "//" in root:
            raise UsageError(f"metadata URI {text!r}: expected one like {DEFAULT_METADATA_URI}")
        return cls(hosts, root)

    @classmethod
    def of(cls, text: str | None) -> Self:
        """Read a URI; None means the one of the environment, else the default."""
        return cls.parse(text or os.environ.get(METADATA_URI_VARIABLE) or DEFAULT_METADATA_URI)

    def __str__(self) -> str:
        """Return the canonical form."""
        return f"zk+hierarchical://{';'.join(self.hosts)}{self.ledgers_root}"


def _host(text: str, uri: str) -> str:
    name, separator, port = text.rpartition(":")
    if not separator:
        name, port = text, str(_PORT_DEFAULT)
    if not name or not port.isdigit() or not 0 < int(port) <= _PORT_MAX:
        raise UsageError(f"metadata URI {uri!r}: {text!r} is not host:port")
    return f"{name}:{port}"
