"""The nodes of the simulated metadata store: a leader's tree and followers that lag behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from ledger.errors import BadVersionError, LedgerError, MetadataError, NodeExistsError, NoNodeError
from ledger.ports import ANY_VERSION, NodeChange, Versioned


@dataclass(frozen=True, slots=True)
class Node:
    """One version of a node; `owner` is the session of an ephemeral one, else 0."""

    value: bytes
    version: int
    owner: int


class ChangeKind(Enum):
    """Kinds of change at a path."""

    CREATED = auto()
    WRITTEN = auto()
    DELETED = auto()


@dataclass(frozen=True, slots=True)
class TreeWrite:
    """One committed write."""

    kind: ChangeKind
    path: str
    node: Node | None


def parent_of(path: str) -> str:
    """Return the path of the node that holds this one."""
    return path.rpartition("/")[0] or "/"


class Tree:
    """Nodes by path, and each node's children in no order that matters."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {"/": Node(b"", 0, 0)}
        self.children: dict[str, dict[str, None]] = {"/": {}}

    def apply(self, change: TreeWrite) -> None:
        """Make a committed change."""
        parent, _, name = change.path.rpartition("/")
        if change.node is None:
            del self.nodes[change.path]
            del self.children[change.path]
            del self.children[parent or "/"][name]
            return
        self.nodes[change.path] = change.node
        if change.kind is ChangeKind.CREATED:
            self.children[change.path] = {}
            self.children[parent or "/"][name] = None

    def get(self, path: str) -> Versioned:
        """Return value and version.

        Raises:
            NoNodeError: It does not exist.

        """
        node = self.node(path)
        return Versioned(node.value, node.version)

    def exists(self, path: str) -> int | None:
        """Return the version, or None."""
        node = self.nodes.get(path)
        return None if node is None else node.version

    def names(self, path: str) -> list[str]:
        """Return the children's names, sorted.

        Raises:
            NoNodeError: It does not exist.

        """
        self.node(path)
        return sorted(self.children[path])

    def node(self, path: str) -> Node:
        """Return the node.

        Raises:
            NoNodeError: It does not exist.

        """
        node = self.nodes.get(path)
        if node is None:
            raise NoNodeError(f"simulated metadata: no node {path}")
        return node


class Leader(Tree):
    """Decides on writes; each returns the changes to be applied everywhere, already applied here."""

    def __init__(self) -> None:
        super().__init__()
        # ZooKeeper numbers sequential nodes by the creations below their parent, whatever their kind.
        self._created_count: dict[str, int] = {}

    def create(
        self, path: str, value: bytes, *, owner: int, sequential: bool, parents: bool
    ) -> tuple[str, list[TreeWrite]]:
        """Create a node; see `MetadataStore.create`."""
        changes: list[TreeWrite] = []
        parent = parent_of(path)
        if parent not in self.nodes:
            if not parents:
                raise NoNodeError(f"simulated metadata: no node {parent}, the parent of {path}")
            _, changes = self.create(parent, b"", owner=0, sequential=False, parents=True)
        elif self.nodes[parent].owner:
            raise MetadataError(f"simulated metadata: {parent} is ephemeral and has no children")
        count = self._created_count.get(parent, 0)
        created = f"{path}{count:010d}" if sequential else path
        if created in self.nodes:
            raise NodeExistsError(f"simulated metadata: {created} exists")
        self._created_count[parent] = count + 1
        change = TreeWrite(ChangeKind.CREATED, created, Node(value, 0, owner))
        self.apply(change)
        return created, [*changes, change]

    def set(self, path: str, value: bytes, version: int) -> tuple[int, list[TreeWrite]]:
        """Compare-and-set; see `MetadataStore.set`."""
        node = self.node(path)
        _check_version(path, node, version)
        change = TreeWrite(ChangeKind.WRITTEN, path, Node(value, node.version + 1, node.owner))
        self.apply(change)
        return node.version + 1, [change]

    def delete(self, path: str, version: int) -> list[TreeWrite]:
        """Delete a node; see `MetadataStore.delete`."""
        node = self.node(path)
        _check_version(path, node, version)
        if self.children[path]:
            raise NodeExistsError(f"simulated metadata: {path} has children")
        change = TreeWrite(ChangeKind.DELETED, path, None)
        self._created_count.pop(path, None)
        self.apply(change)
        return [change]

    def change(self, changes: Sequence[NodeChange]) -> list[TreeWrite]:
        """Make several changes or none; see `MetadataStore.change`."""
        before = (
            dict(self.nodes),
            {path: dict(names) for path, names in self.children.items()},
            dict(self._created_count),
        )
        done: list[TreeWrite] = []
        try:
            for path, value, version in changes:
                if value is None:
                    done += self.delete(path, ANY_VERSION if version is None else version)
                elif version is None:
                    done += self.create(path, value, owner=0, sequential=False, parents=False)[1]
                else:
                    done += self.set(path, value, version)[1]
        except LedgerError:
            self.nodes, self.children, self._created_count = before
            raise
        return done

    def owned_by(self, session_id: int) -> list[str]:
        """Return the paths of a session's ephemeral nodes."""
        return [path for path, node in self.nodes.items() if node.owner == session_id]


def _check_version(path: str, node: Node, version: int) -> None:
    if version not in (ANY_VERSION, node.version):
        raise BadVersionError(f"simulated metadata: {path} has version {node.version}, not {version}")


@dataclass
class TreeReplica:
    """A server that clients read from: behind the leader by the changes that it has not applied yet.

    Attributes:
        tree: What it knows.
        applied_count: Changes applied so far.
        pending: Committed changes that it has not seen, oldest first.
        data_watches: By path: of reads and of looks for existence.
        child_watches: By path: of lists.

    """

    tree: Tree = field(default_factory=Tree)
    applied_count: int = 0
    pending: list[TreeWrite] = field(default_factory=list)
    data_watches: dict[str, list[Callable[[], None]]] = field(default_factory=dict)
    child_watches: dict[str, list[Callable[[], None]]] = field(default_factory=dict)

    def catch_up(self, count: int | None = None) -> None:
        """Apply the oldest `count` pending changes, or all; watches fire."""
        due = self.pending[:count] if count is not None else self.pending[:]
        del self.pending[: len(due)]
        self.applied_count += len(due)
        for change in due:
            self.tree.apply(change)
            watches = self.data_watches.pop(change.path, [])
            if change.kind is ChangeKind.DELETED:
                watches += self.child_watches.pop(change.path, [])
            if change.kind is not ChangeKind.WRITTEN:
                watches += self.child_watches.pop(parent_of(change.path), [])
            for fire in watches:
                fire()
