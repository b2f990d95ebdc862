"""Directories as the machine looks at them: names in order, paths, and what lies below each. Kept from the records."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from rsm_spark.files.records import ROOT, TRASH


class FileNode(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A file or a directory: the columns of its row in `entries`.

    Attributes:
        number: Its own, which it keeps when it is renamed.
        is_directory: Else it is a file.
        size: Bytes of a file; 0 of a directory.
        part_count: Parts of a file's content.
        modified_ms: Logged time at which a file was last written, or a directory made; or what was set.
        accessed_ms: Logged time at which it was made, or what was set; reads do not change it.
        owner: Name of whoever made it.
        permission: As Unix has it.

    """

    number: int
    is_directory: bool
    size: int
    part_count: int
    modified_ms: int
    accessed_ms: int
    owner: str
    permission: int


class FileSum(NamedTuple):
    """Sum over files and directories.

    Attributes:
        files: How many files.
        directories: How many directories.
        size: Bytes of the files.

    """

    files: int
    directories: int
    size: int

    @property
    def names(self) -> int:
        """Number of names."""
        return self.files + self.directories


_ROOT_NODE = FileNode(ROOT, is_directory=True, size=0, part_count=0, modified_ms=0, accessed_ms=0, owner="rsm",
                      permission=0o755)  # fmt: skip


class _Directory:
    """Content of one directory, and sums of all below it, itself left out."""

    __slots__ = ("directories", "files", "names", "nodes", "parent", "size")

    def __init__(self, parent: int | None) -> None:
        self.parent = parent
        self.nodes: dict[str, FileNode] = {}
        self.names: list[str] = []
        self.files = self.directories = self.size = 0

    def add(self, more: FileSum, sign: int) -> None:
        self.files += sign * more.files
        self.directories += sign * more.directories
        self.size += sign * more.size


class FileTree:
    """See the module."""

    def __init__(self) -> None:
        self._directories = {number: _Directory(None) for number in (ROOT, TRASH)}

    # ---- what it is asked

    def find(self, names: tuple[str, ...]) -> FileNode | None:
        """Return what lies at a path, or None."""
        node = _ROOT_NODE
        for name in names:
            if not node.is_directory:
                return None
            found = self._directories[node.number].nodes.get(name)
            if found is None:
                return None
            node = found
        return node

    def child(self, directory: int, name: str) -> FileNode | None:
        """Return what has this name in a directory, or None."""
        return self._directories[directory].nodes.get(name)

    def count(self, directory: int) -> int:
        """Return how many names a directory has."""
        return len(self._directories[directory].names)

    def last(self, directory: int) -> tuple[str, FileNode] | None:
        """Return the last name of a directory, which is removed most quickly, and what has it. None = it is empty.

        Args:
            directory: Its number.

        """
        found = self._directories[directory]
        return (found.names[-1], found.nodes[found.names[-1]]) if found.names else None

    def page(self, directory: int, after: str, limit: int) -> list[tuple[str, FileNode]]:
        """Return names behind one, in order, and what has them."""
        found = self._directories[directory]
        begin = bisect_right(found.names, after) if after else 0
        return [(name, found.nodes[name]) for name in found.names[begin : begin + limit]]

    def below(self, node: FileNode) -> FileSum:
        """Return the sum of something: of a directory with all below it."""
        if not node.is_directory:
            return FileSum(1, 0, node.size)
        found = self._directories[node.number]
        return FileSum(found.files, found.directories + 1, found.size)

    def held(self, directory: int) -> FileSum:
        """Return the sum of all below a directory, itself left out."""
        found = self._directories[directory]
        return FileSum(found.files, found.directories, found.size)

    def above(self, directory: int) -> Iterator[int]:
        """Iterate over a directory and all above it, up to the root."""
        at: int | None = directory
        while at is not None:
            yield at
            at = self._directories[at].parent

    # ---- what it is told

    def put(self, directory: int, name: str, node: FileNode) -> None:
        """Take note that something lies there now."""
        holder = self._directories[directory]
        old = holder.nodes.get(name)
        if old is None:
            insort(holder.names, name)
        else:
            self._count(directory, old, -1)
            if old.is_directory and old.number != node.number:
                self._directories[old.number].parent = None
        holder.nodes[name] = node
        if node.is_directory:
            self._directories.setdefault(node.number, _Directory(None)).parent = directory
        self._count(directory, node, 1)

    def remove(self, directory: int, name: str) -> None:
        """Take note that nothing lies there any more. A directory that is put elsewhere next keeps what it holds."""
        holder = self._directories[directory]
        node = holder.nodes.pop(name, None)
        if node is None:
            return
        del holder.names[bisect_left(holder.names, name)]
        self._count(directory, node, -1)
        if node.is_directory:
            gone = self._directories[node.number]
            gone.parent = None
            if not gone.names:
                del self._directories[node.number]

    def load(self, rows: Iterable[tuple[tuple[int, str], FileNode]]) -> None:
        """Begin anew with rows in any order."""
        directories = self._directories = {number: _Directory(None) for number in (ROOT, TRASH)}
        for (parent, name), node in rows:
            holder = directories.setdefault(parent, _Directory(None))
            holder.nodes[name] = node
            holder.names.append(name)
            if node.is_directory:
                directories.setdefault(node.number, _Directory(None)).parent = parent
        for one in directories.values():
            one.names.sort()
        self._sum_up()

    def _sum_up(self) -> None:
        """Count what lies below each directory, from below."""
        order: list[int] = [ROOT, TRASH]
        for number in order:  # It grows: each directory comes behind the one that holds it.
            order += [node.number for node in self._directories[number].nodes.values() if node.is_directory]
        for number in reversed(order):
            one = self._directories[number]
            for node in one.nodes.values():
                one.add(self.below(node), 1)

    def _count(self, directory: int, node: FileNode, sign: int) -> None:
        more = self.below(node)
        for number in self.above(directory):
            self._directories[number].add(more, sign)
