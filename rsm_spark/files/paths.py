"""Paths of the file store: absolute, with `/` between names, as Hadoop has them. Pure."""

from __future__ import annotations

from rsm_spark.files.errors import FileError, FileFault

PATH_BYTES_MAX = 4_096
NAME_BYTES_MAX = 255
DEPTH_MAX = 64
"""Names in a path at most."""
_SHOWN_MAX = 200


def names_of(path: str) -> tuple[str, ...]:
    """Return the names that a path consists of; those of the root are none.

    Args:
        path: Absolute; one `/` at its end means nothing.

    Raises:
        FileError: `INVALID`: it is no path.

    """
    if not path.startswith("/"):
        raise _invalid(path, "a path begins with /")
    if len(path) > PATH_BYTES_MAX or len(path.encode()) > PATH_BYTES_MAX:
        raise _invalid(path, f"a path has at most {PATH_BYTES_MAX} bytes")
    inner = path[1:].removesuffix("/")
    if not inner:
        return ()
    names = tuple(inner.split("/"))
    if len(names) > DEPTH_MAX:
        raise _invalid(path, f"a path has at most {DEPTH_MAX} names, this one has {len(names)}")
    for name in names:
        if name in ("", ".", ".."):
            raise _invalid(path, "no name in it is empty, '.' or '..'")
        if len(name.encode()) > NAME_BYTES_MAX:
            raise _invalid(path, f"a name has at most {NAME_BYTES_MAX} bytes")
        if ":" in name or not name.isprintable():
            raise _invalid(path, "a name has no ':' and nothing that cannot be printed, as Hadoop demands")
    return names


def path_of(names: tuple[str, ...]) -> str:
    """Return the path of names."""
    return "/" + "/".join(names)


def shown(path: str) -> str:
    """Return a path for messages: a long one is cut."""
    return path if len(path) <= _SHOWN_MAX else path[:_SHOWN_MAX] + "…"


def is_below(path: tuple[str, ...], directory: tuple[str, ...]) -> bool:
    """Return whether a path is a directory, or something in it."""
    return path[: len(directory)] == directory


def _invalid(path: str, why: str) -> FileError:
    return FileError(FileFault.INVALID, f"{shown(path)!r} cannot be a path: {why}")
