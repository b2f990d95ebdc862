"""Interfaces of what the ledger needs from outside; `ledger.zookeeper` and `ledger.testing` implement them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

ANY_VERSION = -1
"""Version argument that matches every version."""

Watcher = Callable[[], None]
"""Called once, on the event loop, when what was read may have changed or the session state did: a hint."""


class SessionState(StrEnum):
    """State of the session with the metadata store.

    CONNECTED -> SUSPENDED: no server answers; ephemerals may still live.
    SUSPENDED -> CONNECTED: the same session goes on.
    SUSPENDED -> LOST: the session expired; its ephemerals are gone. A new session starts by itself
    (-> CONNECTED), with nothing of the old one.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


class Versioned(NamedTuple):
    """A node's value and the version that a compare-and-set must name."""

    value: bytes
    version: int


class NodeChange(NamedTuple):
    """Change of one node.

    Attributes:
        path: Of the node.
        value: What it is to hold; None = it is to be deleted.
        version: What it must have before; None = there must be no such node, and it is created.

    """

    path: str
    value: bytes | None = None
    version: int | None = ANY_VERSION


class MetadataStore(Protocol):
    """A tree of small versioned nodes, as ZooKeeper serves it. Paths are absolute.

    Every call raises `MetadataUnavailableError` when no reply came (a write may have been applied all
    the same) and `MetadataSessionLostError` when the session is gone.
    """

    @property
    def session_state(self) -> SessionState:
        """State of the session as last heard."""
        ...

    @property
    def session_id(self) -> int:
        """Id of the present session; another one after a loss."""
        ...

    def on_session_state(self, listener: Callable[[SessionState], None]) -> Callable[[], None]:
        """Call `listener` on the event loop at every change of state; return what unsubscribes it."""
        ...

    async def get(self, path: str, *, watch: Watcher | None = None) -> Versioned:
        """Read a node. The server asked may lag: `sync` first where that matters.

        Raises:
            NoNodeError: It does not exist; no watch is left.

        """
        ...

    async def exists(self, path: str, *, watch: Watcher | None = None) -> int | None:
        """Return the node's version, or None; the watch also sees its creation."""
        ...

    async def modified_ms(self, path: str) -> int:
        """Return when the node was last written, by the servers' clock: Unix time.

        Raises:
            NoNodeError: It does not exist.

        """
        ...

    async def children(self, path: str, *, watch: Watcher | None = None) -> list[str]:
        """Return the names of the node's children, sorted.

        Raises:
            NoNodeError: The node does not exist.

        """
        ...

    async def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        parents: bool = False,
    ) -> str:
        """Create a node and return its path (with ten digits more if sequential).

        Raises:
            NodeExistsError: The path is taken.
            NoNodeError: The parent is missing, and `parents` was not asked for.

        """
        ...

    async def set(self, path: str, value: bytes, version: int) -> int:
        """Compare-and-set: replace the value if the version is still `version`; return the new version.

        Raises:
            BadVersionError: It has another version; nothing was changed.
            NoNodeError: It does not exist.

        """
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a node without children.

        Raises:
            BadVersionError: It has another version.
            NoNodeError: It does not exist.
            NodeExistsError: It has children.

        """
        ...

    async def change(self, changes: Sequence[NodeChange]) -> None:
        """Make several changes at once, each upon those before it, or none of them.

        Raises:
            BadVersionError, NodeExistsError, NoNodeError: One of them cannot be made; nothing was changed.

        """
        ...

    async def sync(self, path: str) -> None:
        """Wait until the server asked has seen every write that was acknowledged before this call."""
        ...

    async def close(self) -> None:
        """End the session; its ephemeral nodes go at once."""
        ...
