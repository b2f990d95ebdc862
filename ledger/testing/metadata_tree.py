"""The tree of a simulated ZooKeeper: every version of every node, so that followers may lag behind.

Plain data without a loop. A write makes a new `zxid`; a reader at an older one sees the tree as it was.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from enum import Enum

import msgspec

from ledger.errors import BadVersionError, MetadataError, NodeExistsError, NoNodeError
from ledger.ports import ANY_VERSION

__all__ = ["Change", "MetadataTree", "TreeNode"]

_NO_OWNER = 0


class Change(Enum):
    """What a watch may see."""

    VALUE = "value"  # the node was created, changed or deleted
    CHILDREN = "children"  # a child came or went, or the node itself went


class TreeNode(msgspec.Struct, frozen=True):
    """One version of a node.

    Attributes:
        value: Bytes.
        version: Of the value; 0 after creation.
        owner: Session of an ephemeral node, else 0.
        children: Names, sorted.
        sequence: Children ever created: number of the next sequential one.

    """

    value: bytes
    version: int = 0
    owner: int = _NO_OWNER
    children: tuple[str, ...] = ()
    sequence: int = 0


class MetadataTree:
    """Versions of all nodes.

    Attributes:
        zxid: Number of the last write.
        changes: (zxid, path, what), ascending: what watches are checked against.

    """

    def __init__(self) -> None:
        self.zxid = 0
        self.changes: list[tuple[int, str, Change]] = []
        # path -> zxids ascending, and the node since each of them (None: there is none).
        self._versions: dict[str, tuple[list[int], list[TreeNode | None]]] = {"/": ([0], [TreeNode(b"")])}
        # session -> its ephemeral nodes, in the order of creation.
        self._ephemerals: dict[int, dict[str, None]] = {}

    def find(self, path: str, zxid: int) -> TreeNode | None:
        """Return the node as it was at `zxid`, or None."""
        versions = self._versions.get(path)
        if versions is None:
            return None
        place = bisect_right(versions[0], zxid) - 1
        return versions[1][place] if place >= 0 else None

    def get(self, path: str, zxid: int) -> TreeNode:
        """Return the node as it was at `zxid`.

        Raises:
            NoNodeError: There was none.

        """
        node = self.find(path, zxid)
        if node is None:
            raise NoNodeError(f"simulated metadata store: no node {path}")
        return node

    def first_change_after(self, zxid: int, path: str, what: Change) -> int | None:
        """Return the first write after `zxid` that a watch of this kind sees, or None."""
        start = bisect_right(self.changes, zxid, key=lambda change: change[0])
        return next((at for at, where, kind in self.changes[start:] if where == path and kind is what), None)

    def create(self, path: str, value: bytes, *, owner: int = _NO_OWNER, is_sequential: bool = False) -> str:
        """Create a node; return its path.

        Raises:
            NoNodeError: There is no parent.
            NodeExistsError: The path is taken.
            MetadataError: The parent is ephemeral.

        """
        parent_path = _parent(path)
        parent = self.get(parent_path, self.zxid)
        if parent.owner != _NO_OWNER:
            raise MetadataError(f"simulated metadata store: {parent_path} is ephemeral and has no children")
        if is_sequential:
            path = f"{path}{parent.sequence:010d}"
        if self.find(path, self.zxid) is not None:
            raise NodeExistsError(f"simulated metadata store: {path} exists")
        self.zxid += 1
        name = path.rpartition("/")[2]
        children = tuple(sorted((*parent.children, name)))
        self._put(parent_path, msgspec.structs.replace(parent, children=children, sequence=parent.sequence + 1))
        self._put(path, TreeNode(value, owner=owner))
        if owner != _NO_OWNER:
            self._ephemerals.setdefault(owner, {})[path] = None
        self._note((path, Change.VALUE), (parent_path, Change.CHILDREN))
        return path

    def set(self, path: str, value: bytes, version: int) -> int:
        """Replace a value; return the new version.

        Raises:
            NoNodeError: There is no such node.
            BadVersionError: It has another version.

        """
        node = self._checked(path, version)
        self.zxid += 1
        self._put(path, msgspec.structs.replace(node, value=value, version=node.version + 1))
        self._note((path, Change.VALUE))
        return node.version + 1

    def delete(self, path: str, version: int) -> None:
        """Delete a node.

        Raises:
            NoNodeError: There is no such node.
            BadVersionError: It has another version.
            NodeExistsError: It has children.

        """
        node = self._checked(path, version)
        if node.children:
            raise NodeExistsError(f"simulated metadata store: {path} has children")
        self.zxid += 1
        parent_path = _parent(path)
        parent = self.get(parent_path, self.zxid)
        name = path.rpartition("/")[2]
        children = tuple(child for child in parent.children if child != name)
        self._put(parent_path, msgspec.structs.replace(parent, children=children))
        self._put(path, None)
        if node.owner != _NO_OWNER:
            del self._ephemerals[node.owner][path]
        self._note((path, Change.VALUE), (path, Change.CHILDREN), (parent_path, Change.CHILDREN))

    def end_session(self, session_id: int) -> None:
        """Delete the ephemeral nodes of a session."""
        for path in list(self._ephemerals.get(session_id, ())):
            self.delete(path, ANY_VERSION)
        self._ephemerals.pop(session_id, None)

    def _checked(self, path: str, version: int) -> TreeNode:
        node = self.get(path, self.zxid)
        if version not in (ANY_VERSION, node.version):
            raise BadVersionError(f"simulated metadata store: {path} has version {node.version}, not {version}")
        return node

    def _put(self, path: str, node: TreeNode | None) -> None:
        zxids, nodes = self._versions.setdefault(path, ([], []))
        zxids.append(self.zxid)
        nodes.append(node)

    def _note(self, *seen: tuple[str, Change]) -> None:
        self.changes += ((self.zxid, path, what) for path, what in seen)

    def paths(self) -> Iterable[str]:
        """Return the paths of all nodes there are now, sorted."""
        return [path for path in sorted(self._versions) if self.find(path, self.zxid) is not None]


def _parent(path: str) -> str:
    if not path.startswith("/") or path == "/" or path.endswith("/") and path != "/":
        raise MetadataError(f"simulated metadata store: {path!r} is no path of a node")
    return path.rpartition("/")[0] or "/"
