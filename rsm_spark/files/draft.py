"""Records of one command on the file store: what is checked, and what is then to be logged. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from rsm_spark.core.contents import FileContent
from rsm_spark.files.commands import ANY, RenameRule
from rsm_spark.files.errors import FileError, FileFault
from rsm_spark.files.limits import CHILDREN_MAX, PARTS_MAX, bound_of, check_owner, check_size, time_of
from rsm_spark.files.paths import is_below, names_of, path_of, shown
from rsm_spark.files.records import (
    ENTERED,
    LEDGER_FREED,
    LEDGER_UNNAMED,
    PART_ERASED,
    PART_WRITTEN,
    QUOTA_CLEARED,
    QUOTA_SET,
    REMOVED,
    TRASH,
)
from rsm_spark.files.tree import FileNode, FileSum, FileTree

Quotas = Callable[[int], tuple[int, int] | None]
"""Returns of a directory how many names and bytes it may have; None = any."""
Contents = Callable[[int], FileContent | None]
"""Returns of a file what of it lies in a ledger; None = nothing."""


class _Place(NamedTuple):
    """A name in a directory that is there.

    Attributes:
        directory: Number of the lowest directory of the path that is there.
        missing: Names of directories below it that are not.
        name: The last one.
        node: What is there; None = nothing.

    """

    directory: int
    missing: tuple[str, ...]
    name: str
    node: FileNode | None


class FileDraft:
    """Draft of what one command logs. Each of its methods is one command, and raises `FileError` where it is refused.

    Args:
        tree: The directories as they are; not changed.
        quotas: See `Quotas`.
        contents: See `Contents`.
        revision: Of the first record.
        now_ms: Logged time.

    Attributes:
        records: Made so far.

    """

    def __init__(self, tree: FileTree, quotas: Quotas, contents: Contents, revision: int, now_ms: int) -> None:
        self._tree = tree
        self._quotas = quotas
        self._contents = contents
        self._revision = revision
        self._now_ms = now_ms
        self.records: list[tuple[int, tuple[Any, ...]]] = []

    # ---- commands

    def create(self, path: str, content: bytes, owner: str, permission: int, *, overwrite: bool) -> None:
        """Make a file."""
        place = self._free_place(path, overwrite=overwrite)
        check_size(path, content, 0)
        check_owner(owner, permission)
        self._enter_file(place, owner, permission, len(content), 1 if content else 0, content=content)

    def _free_place(self, path: str, *, overwrite: bool) -> _Place:
        """Return the place of a file that may be made."""
        place = self._place(path)
        old = place.node
        if old is not None and old.is_directory:
            raise FileError(FileFault.EXISTS, f"{shown(path)} already exists as a directory")
        if old is not None and not overwrite:
            raise FileError(FileFault.EXISTS, f"{shown(path)} already exists")
        return place

    def _enter_file(
        self, place: _Place, owner: str, permission: int, size: int, part_count: int, *, number: int = 0,
        content: bytes = b"",
    ) -> None:  # fmt: skip
        """Put a file at a place; without a number it is a new one, with this content."""
        old = place.node
        more = FileSum(0 if old else 1, len(place.missing), size - (old.size if old else 0))
        self._check_room(place, more)
        if old is not None:
            self._remove(place.directory, place.name, old)
        directory = self._make_missing(place, owner, permission | 0o111)
        number = number or self._next_number
        if content:
            self.records.append((PART_WRITTEN, (number, 0, content)))
        node = FileNode(
            number, is_directory=False, size=size, part_count=part_count, modified_ms=self._now_ms,
            accessed_ms=self._now_ms, owner=owner, permission=permission,
        )  # fmt: skip
        self._enter(directory, place.name, node)

    def append(self, path: str, content: bytes) -> None:
        """Put bytes behind a file's."""
        place = self._there(path)
        node = _file(path, place.node)
        held = self._contents(node.number)
        check_size(path, content, node.size - (held.size if held else 0))
        if not content:
            return
        if node.part_count >= PARTS_MAX:
            raise FileError(FileFault.TOO_LARGE, f"{shown(path)} has been appended to {PARTS_MAX} times: write it anew")
        self._check_room(place, FileSum(0, 0, len(content)))
        self.records.append((PART_WRITTEN, (node.number, node.part_count, content)))
        longer = msgspec.structs.replace(
            node, size=node.size + len(content), part_count=node.part_count + 1, modified_ms=self._now_ms
        )
        self._enter(place.directory, place.name, longer)

    def make_directory(self, path: str, owner: str, permission: int) -> None:
        """Make a directory."""
        names = names_of(path)
        if not names:
            return
        place = self._place(path)
        if place.node is not None:
            if not place.node.is_directory:
                raise FileError(FileFault.EXISTS, f"{shown(path)} already exists as a file")
            return
        check_owner(owner, permission)
        self._check_room(place, FileSum(0, len(place.missing) + 1, 0))
        directory = self._make_missing(place, owner, permission)
        self._enter(directory, place.name, self._new_directory(owner, permission))

    def rename(self, source: str, destination: str, rule: RenameRule) -> bool:
        """Give something another path; return False where Hadoop's first rename says so."""
        names, to = names_of(source), names_of(destination)
        node = self._tree.find(names)
        if rule is RenameRule.INTO:
            return self._rename_into(names, to, node)
        if node is None:
            raise _not_found(source)
        if not names or not to:
            raise FileError(FileFault.INVALID, "the root cannot be renamed, and nothing can become the root")
        if names == to:
            raise FileError(FileFault.EXISTS, f"source and destination are the same: {shown(source)}")
        if is_below(to, names):
            raise FileError(FileFault.INVALID, f"{shown(destination)} lies below {shown(source)}: nothing holds itself")
        self._move(names, to, node, is_overwriting=rule is RenameRule.OVERWRITE)
        return True

    def delete(self, path: str, *, is_recursive: bool) -> bool:
        """Delete something; return whether there was anything."""
        names = names_of(path)
        if not names:
            raise FileError(FileFault.INVALID, "the root cannot be deleted")
        node = self._tree.find(names)
        if node is None:
            return False
        directory = self._directory_of(names)
        if node.is_directory and self._tree.count(node.number):
            if not is_recursive:
                raise FileError(
                    FileFault.NOT_EMPTY, f"{shown(path)} is not empty: delete it recursively, or its content first"
                )
            # What lies below goes by and by: a directory may hold more than an entry of the log can tell.
            self.records.append((REMOVED, (directory, names[-1])))
            self._enter(TRASH, str(node.number), node)
            return True
        self._remove(directory, names[-1], node)
        return True

    def set_times(self, path: str, modified_ms: int | None, accessed_ms: int | None) -> None:
        """Set times."""
        place = self._there(path)
        assert place.node is not None
        node = msgspec.structs.replace(
            place.node,
            modified_ms=place.node.modified_ms if modified_ms is None else time_of(modified_ms),
            accessed_ms=place.node.accessed_ms if accessed_ms is None else time_of(accessed_ms),
        )
        self._enter(place.directory, place.name, node)

    def set_permission(self, path: str, permission: int) -> None:
        """Set the permission that is shown."""
        place = self._there(path)
        assert place.node is not None
        check_owner("", permission)
        self._enter(place.directory, place.name, msgspec.structs.replace(place.node, permission=permission))

    def set_quota(self, path: str, names_max: int | None, bytes_max: int | None) -> None:
        """Bound what lies below a directory. What is there already may be more: it only grows no further."""
        node = self._tree.find(names_of(path))
        if node is None:
            raise _not_found(path)
        if not node.is_directory:
            raise FileError(FileFault.NO_DIRECTORY, f"{shown(path)} is a file: a directory has quotas")
        names_before, bytes_before = self._quotas(node.number) or (ANY, ANY)
        wanted = (
            names_before if names_max is None else bound_of(names_max),
            bytes_before if bytes_max is None else bound_of(bytes_max),
        )
        if wanted != (ANY, ANY):
            self.records.append((QUOTA_SET, (node.number, *wanted)))
        elif self._quotas(node.number) is not None:
            self.records.append((QUOTA_CLEARED, (node.number,)))

    def purge_one(self) -> bool:
        """Remove one thing of what lies in the trash; return whether there was any.

        What lies in a directory of the trash is removed there, and its directories become the trash's own, so that no
        walk is ever deep.
        """
        found = self._tree.last(TRASH)
        if found is None:
            return False
        name, node = found
        inner = self._tree.last(node.number) if node.is_directory else None
        if inner is None:
            self._remove(TRASH, name, node)
            return True
        inner_name, inner_node = inner
        if inner_node.is_directory and self._tree.count(inner_node.number):
            self.records.append((REMOVED, (node.number, inner_name)))
            self._enter(TRASH, str(inner_node.number), inner_node)
        else:
            self._remove(node.number, inner_name, inner_node)
        return True

    # ---- steps

    @property
    def _next_number(self) -> int:
        """Number that nothing has: the revision of the record that will be made next."""
        return self._revision + len(self.records)

    def _enter(self, directory: int, name: str, node: FileNode) -> None:
        self.records.append((ENTERED, (directory, name, *msgspec.structs.astuple(node))))

    def _remove(self, directory: int, name: str, node: FileNode) -> None:
        self.records.append((REMOVED, (directory, name)))
        self.records.extend((PART_ERASED, (node.number, part)) for part in range(node.part_count))
        held = None if node.is_directory else self._contents(node.number)
        if held is not None:
            self.records.append((LEDGER_UNNAMED, (node.number,)))
            self.records.append((LEDGER_FREED, (held.ledger, node.number, True)))
        if node.is_directory and self._quotas(node.number) is not None:
            self.records.append((QUOTA_CLEARED, (node.number,)))

    def _new_directory(self, owner: str, permission: int) -> FileNode:
        return FileNode(
            self._next_number, is_directory=True, size=0, part_count=0, modified_ms=self._now_ms,
            accessed_ms=self._now_ms, owner=owner, permission=permission,
        )  # fmt: skip

    def _make_missing(self, place: _Place, owner: str, permission: int) -> int:
        directory = place.directory
        for name in place.missing:
            made = self._new_directory(owner, permission)
            self._enter(directory, name, made)
            directory = made.number
        return directory

    def _rename_into(self, names: tuple[str, ...], to: tuple[str, ...], node: FileNode | None) -> bool:
        if node is None or not names:
            return False
        if names == to:
            return True
        target = self._tree.find(to)
        if target is not None and target.is_directory:
            to = (*to, names[-1])
            target = self._tree.find(to)
        if target is not None or is_below(to, names):
            return False
        holder = self._tree.find(to[:-1])
        if holder is None or not holder.is_directory:
            return False
        self._move(names, to, node, is_overwriting=False)
        return True

    def _move(self, names: tuple[str, ...], to: tuple[str, ...], node: FileNode, *, is_overwriting: bool) -> None:
        place = self._place(path_of(to))
        target = place.node
        if place.missing:
            raise FileError(FileFault.NOT_FOUND, f"{shown(path_of(to[:-1]))} does not exist: make it before")
        if target is not None:
            self._check_replaced(path_of(to), target, node, is_overwriting=is_overwriting)
        self._check_room(place, _less(self._tree.below(node), target), at=self._directory_of(names))
        if target is not None:
            self._remove(place.directory, place.name, target)
        self.records.append((REMOVED, (self._directory_of(names), names[-1])))
        self._enter(place.directory, place.name, node)

    def _check_replaced(self, path: str, target: FileNode, node: FileNode, *, is_overwriting: bool) -> None:
        if not is_overwriting:
            raise FileError(FileFault.EXISTS, f"{shown(path)} already exists")
        if target.is_directory != node.is_directory:
            kind = "a directory" if target.is_directory else "a file"
            raise FileError(FileFault.INVALID, f"{shown(path)} is {kind}, what is renamed is not")
        if target.is_directory and self._tree.count(target.number):
            raise FileError(FileFault.NOT_EMPTY, f"{shown(path)} is not empty: it cannot be replaced")

    def _directory_of(self, names: tuple[str, ...]) -> int:
        """Return the number of the directory that holds something that is there."""
        holder = self._tree.find(names[:-1])
        assert holder is not None
        return holder.number

    def _place(self, path: str) -> _Place:
        names = names_of(path)
        if not names:
            raise FileError(FileFault.IS_DIRECTORY, "/ is the root")
        for depth in range(len(names) - 1, -1, -1):
            holder = self._tree.find(names[:depth])
            if holder is None:
                continue
            if not holder.is_directory:
                raise FileError(FileFault.PARENT_IS_FILE, f"{shown(path_of(names[:depth]))} is a file, no directory")
            missing = names[depth:-1]
            node = None if missing else self._tree.child(holder.number, names[-1])
            return _Place(holder.number, missing, names[-1], node)
        raise AssertionError("there is a root")

    def _there(self, path: str) -> _Place:
        """Return the place of something that is there, and is not the root."""
        names = names_of(path)
        if not names:
            raise FileError(FileFault.INVALID, "the root stays as it is")
        place = self._place(path)
        if place.node is None:
            raise _not_found(path)
        return place

    def _check_room(self, place: _Place, more: FileSum, *, at: int | None = None) -> None:
        """Refuse what a directory, or a quota above, has no room for.

        Args:
            place: Where something comes to lie.
            more: What comes, less what goes.
            at: Directory in which it has lain: what is above both does not grow.

        """
        if place.node is None and self._tree.count(place.directory) >= CHILDREN_MAX:
            raise FileError(FileFault.TOO_LARGE, f"a directory has at most {CHILDREN_MAX} names, this one has them")
        before = frozenset() if at is None else frozenset(self._tree.above(at))
        for number in self._tree.above(place.directory):
            quota = None if number in before else self._quotas(number)
            if quota is None:
                continue
            names_max, bytes_max = quota
            held = self._tree.held(number)
            if names_max != ANY and more.names > 0 and held.names + more.names > names_max:
                raise FileError(
                    FileFault.NAMES_QUOTA,
                    f"a directory above has a quota of {names_max} names: it has {held.names}, {more.names} more come",
                )
            if bytes_max != ANY and more.size > 0 and held.size + more.size > bytes_max:
                raise FileError(
                    FileFault.BYTES_QUOTA,
                    f"a directory above has a quota of {bytes_max} bytes: it has {held.size}, {more.size} more come",
                )


def _less(more: FileSum, gone: FileNode | None) -> FileSum:
    """Return a sum without what is replaced: a file, or an empty directory."""
    if gone is None:
        return more
    if gone.is_directory:
        return more._replace(directories=more.directories - 1)
    return FileSum(more.files - 1, more.directories, more.size - gone.size)


def _file(path: str, node: FileNode | None) -> FileNode:
    assert node is not None
    if node.is_directory:
        raise FileError(FileFault.IS_DIRECTORY, f"{shown(path)} is a directory, no file")
    return node


def _not_found(path: str) -> FileError:
    return FileError(FileFault.NOT_FOUND, f"{shown(path)} does not exist")
