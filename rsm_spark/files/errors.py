"""Errors of the file store.

* `FileError(RsmError)`        says by a `FileFault` what kind it is
  * `NoSuchFileError`          there is nothing at that path
"""

from __future__ import annotations

from enum import StrEnum

from rsm_spark.errors import RsmError


class FileFault(StrEnum):
    """Fault of what was asked of the file store; each has an exception of Hadoop's at the door.

    NOT_FOUND: There is no such file or directory. EXISTS: There is one. NO_DIRECTORY: It is a file.
    PARENT_IS_FILE: Something above it is a file. IS_DIRECTORY: It is a directory. NOT_EMPTY: It is a directory with
    something in it. INVALID: It cannot be asked like that. NAMES_QUOTA, BYTES_QUOTA: A quota of a directory above it
    would be exceeded. TOO_LARGE: It is beyond a bound of every file store. FULL: The leader's memory is nearly used up.
    """

    NOT_FOUND = "not-found"
    EXISTS = "exists"
    NO_DIRECTORY = "no-directory"
    PARENT_IS_FILE = "parent-is-file"
    IS_DIRECTORY = "is-directory"
    NOT_EMPTY = "not-empty"
    INVALID = "invalid"
    NAMES_QUOTA = "names-quota"
    BYTES_QUOTA = "bytes-quota"
    TOO_LARGE = "too-large"
    FULL = "full"


class FileError(RsmError):
    """The file store refuses what was asked; nothing was changed.

    Attributes:
        fault: What kind of refusal it is.

    """

    def __init__(self, fault: FileFault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


class NoSuchFileError(FileError):
    """There is no such file or directory."""


def file_error(fault: FileFault, message: str) -> FileError:
    """Return the error of a fault."""
    return (NoSuchFileError if fault is FileFault.NOT_FOUND else FileError)(fault, message)
