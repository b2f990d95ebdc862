"""Answers of WebHDFS as JSON documents, and errors as the exceptions that Hadoop's clients know."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from ledger.http.problems import HttpProblem
from rsm_spark.errors import DamagedContentError, InvalidCommandError, OutcomeUnknownError
from rsm_spark.files.commands import ANY, EntriesSum, EntryShown
from rsm_spark.files.errors import FileError, FileFault

BLOCK_BYTES = 128 * 1024 * 1024
"""Size of a block that files are said to have; they have none."""
_REPLICATION = 3
_GROUP = "rsm"
_STATUS_OF_OVERLOAD = frozenset({429, 503})


class RemoteFault(NamedTuple):
    """Error as WebHDFS tells it: status of HTTP, Java class, message."""

    status: int
    java_class: str
    message: str

    def document(self) -> dict[str, Any]:
        """Return it as Hadoop's clients read it."""
        exception = self.java_class.rpartition(".")[2]
        return {"RemoteException": {"exception": exception, "javaClassName": self.java_class, "message": self.message}}


_JAVA: dict[FileFault, tuple[int, str]] = {
    FileFault.NOT_FOUND: (404, "java.io.FileNotFoundException"),
    FileFault.EXISTS: (403, "org.apache.hadoop.fs.FileAlreadyExistsException"),
    FileFault.NO_DIRECTORY: (403, "org.apache.hadoop.fs.PathIsNotDirectoryException"),
    FileFault.PARENT_IS_FILE: (403, "org.apache.hadoop.fs.ParentNotDirectoryException"),
    FileFault.IS_DIRECTORY: (404, "java.io.FileNotFoundException"),
    FileFault.NOT_EMPTY: (403, "org.apache.hadoop.fs.PathIsNotEmptyDirectoryException"),
    FileFault.INVALID: (400, "java.lang.IllegalArgumentException"),
    FileFault.NAMES_QUOTA: (403, "org.apache.hadoop.hdfs.protocol.NSQuotaExceededException"),
    FileFault.BYTES_QUOTA: (403, "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException"),
    FileFault.TOO_LARGE: (403, "java.io.IOException"),
    FileFault.FULL: (503, "org.apache.hadoop.ipc.RetriableException"),
}
_BY_STATUS = {
    400: "java.lang.IllegalArgumentException",
    401: "java.lang.SecurityException",
    403: "org.apache.hadoop.security.AccessControlException",
    404: "java.io.FileNotFoundException",
    405: "java.lang.UnsupportedOperationException",
}
_LATER = "org.apache.hadoop.ipc.RetriableException"


def fault_of(error: Exception) -> RemoteFault | None:
    """Return an error as WebHDFS tells it; None if it is none of what is raised on purpose.

    Args:
        error: A `FileError`, an `HttpProblem`, or what a replica or its leader answers.

    """
    match error:
        case FileError():
            return RemoteFault(*_JAVA[error.fault], str(error))
        case HttpProblem():
            later = _LATER if error.status in _STATUS_OF_OVERLOAD else "java.io.IOException"
            return RemoteFault(error.status, _BY_STATUS.get(error.status, later), error.detail)
        case DamagedContentError():
            return RemoteFault(500, "java.io.IOException", str(error))
        case OutcomeUnknownError():
            return RemoteFault(503, "java.io.IOException", str(error))
        case InvalidCommandError():
            return RemoteFault(403, "java.io.IOException", str(error))
    return None


def later(error: Exception) -> RemoteFault:
    """Return an error of the moment: nothing was done, the same may be asked again."""
    return RemoteFault(503, _LATER, str(error) or "it took too long: ask again")


def status_document(entry: EntryShown) -> dict[str, Any]:
    """Return a `FileStatus`."""
    is_directory = entry.is_directory
    return {
        "pathSuffix": entry.name,
        "type": "DIRECTORY" if is_directory else "FILE",
        "length": entry.size,
        "owner": entry.owner,
        "group": _GROUP,
        "permission": f"{entry.permission:o}",
        "accessTime": entry.accessed_ms,
        "modificationTime": entry.modified_ms,
        "blockSize": 0 if is_directory else BLOCK_BYTES,
        "replication": 0 if is_directory else _REPLICATION,
        "childrenNum": entry.child_count,
        "fileId": entry.number,
        "storagePolicy": 0,
    }


def sum_document(found: EntriesSum) -> dict[str, Any]:
    """Return a `ContentSummary`."""
    return {
        "directoryCount": found.directories,
        "fileCount": found.files,
        "length": found.size,
        "quota": found.names_max,
        "spaceConsumed": found.size,
        "spaceQuota": found.bytes_max,
        "typeQuota": {},
    }


def quota_document(found: EntriesSum) -> dict[str, Any]:
    """Return a `QuotaUsage`."""
    return {
        "fileAndDirectoryCount": found.files + found.directories,
        "quota": found.names_max,
        "spaceConsumed": found.size,
        "spaceQuota": found.bytes_max,
        "typeQuota": {},
    }


def place_document(entry: EntryShown, address: str, offset: int, length: int | None) -> list[dict[str, Any]]:
    """Return where a part of a file lies: at the server that is asked, in one block.

    Args:
        entry: The file.
        address: "host:port" of that server.
        offset: Of the part.
        length: Of the part; None = to the end.

    """
    size = max(0, entry.size - offset if length is None else min(length, entry.size - offset))
    if not size:
        return []
    host = address.rpartition(":")[0]
    return [
        {
            "offset": offset,
            "length": size,
            "corrupt": False,
            "hosts": [host],
            "names": [address],
            "cachedHosts": [],
            "storageTypes": ["DISK"],
            "topologyPaths": [f"/default-rack/{address}"],
        }
    ]


def defaults_document() -> dict[str, Any]:
    """Return `FsServerDefaults`. The Java client wants all of these, in these types."""
    return {
        "FsServerDefaults": {
            "blocksize": BLOCK_BYTES,
            "blockSize": BLOCK_BYTES,
            "bytesPerChecksum": 512,
            "checksumType": 2,
            "defaultStoragePolicyId": 0,
            "encryptDataTransfer": False,
            "fileBufferSize": 65_536,
            "keyProviderUri": "",
            "policyId": 0,
            "replication": _REPLICATION,
            "trashInterval": 0,
            "writePacketSize": 65_536,
        }
    }


def encoded(document: dict[str, Any]) -> bytes:
    """Return the bytes of a document."""
    return msgspec.json.encode(document)


UNBOUNDED = ANY
"""Value of a quota that is none, in requests and documents."""
