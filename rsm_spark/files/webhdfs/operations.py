"""Operations of WebHDFS: what is served, by whom it may be asked, and what is refused in words."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from ledger.http.problems import HttpProblem
from ledger.http.replies import HttpReply
from ledger.rights.table import Right
from rsm_spark.files.commands import (
    AppendFile,
    DeleteEntry,
    EntriesPage,
    EntriesSum,
    EntryShown,
    FileDone,
    FilePart,
    FilePlace,
    ListEntries,
    MakeDirectory,
    ReadFile,
    RenameEntry,
    RenameRule,
    SetFileTimes,
    SetPermission,
    SetQuota,
    ShowEntry,
    SumEntries,
)
from rsm_spark.files.errors import FileError, FileFault
from rsm_spark.files.machine import PAGE_MAX
from rsm_spark.files.webhdfs.call import WebHdfsCall
from rsm_spark.files.webhdfs.documents import (
    defaults_document,
    encoded,
    place_document,
    quota_document,
    status_document,
    sum_document,
)
from rsm_spark.files.writing import write_file

PREFIX = "/webhdfs/v1"
_FILE_PERMISSION, _DIRECTORY_PERMISSION = 0o644, 0o755
_BYTES = b"application/octet-stream"
_UNSET = 1 << 62
"""Numbers from here on mean "leave it as it is" in Hadoop's requests."""
_RULES: Final = {"": RenameRule.INTO, "NONE": RenameRule.NEW, "OVERWRITE": RenameRule.OVERWRITE}
_ACTIONS: Final = {"r": Right.STATE_READ, "x": Right.STATE_READ, "w": Right.STATE_WRITE}


class WebHdfsOperation(NamedTuple):
    """Operation that is served.

    Attributes:
        method: Of HTTP.
        right: That a caller needs.
        handler: Answers.

    """

    method: str
    right: Right
    handler: Callable[[WebHdfsCall], Awaitable[HttpReply | FileStream]]


class FileStream(NamedTuple):
    """Answer of 200 whose body is longer than one piece.

    Attributes:
        content_type: Of the body.
        size: Bytes of all pieces.
        pieces: Of the body.

    """

    content_type: bytes
    size: int
    pieces: AsyncGenerator[bytes]


def _json(document: dict[str, Any], status: int = 200) -> HttpReply:
    # No content type: with one, the Java client of pyspark looks for a class that pyspark does not ship.
    return HttpReply(status, encoded(document), content_type=b"")


def _nothing(status: int = 200, location: str = "") -> HttpReply:
    headers = ((b"location", location.encode("latin-1")),) if location else ()
    return HttpReply(status, b"", headers, content_type=b"")


async def _shown(call: WebHdfsCall) -> EntryShown:
    found = await call.query(ShowEntry(call.path))
    assert isinstance(found, EntryShown)
    return found


async def _summed(call: WebHdfsCall) -> EntriesSum:
    found = await call.query(SumEntries(call.path))
    assert isinstance(found, EntriesSum)
    return found


# ---- reads


async def _status(call: WebHdfsCall) -> HttpReply:
    return _json({"FileStatus": status_document(await _shown(call))})


async def _list(call: WebHdfsCall) -> HttpReply:
    """List all of a directory: page by page, as HDFS does, so that nobody waits for a long listing."""
    statuses: list[dict[str, Any]] = []
    after = ""
    while True:
        page = await call.query(ListEntries(call.path, after, PAGE_MAX))
        assert isinstance(page, EntriesPage)
        statuses += [status_document(one) for one in page.entries]
        if not page.has_more:
            return _json({"FileStatuses": {"FileStatus": statuses}})
        after = page.entries[-1].name


async def _list_batch(call: WebHdfsCall) -> HttpReply:
    page = await call.query(ListEntries(call.path, call.parameters.text("startafter"), PAGE_MAX))
    assert isinstance(page, EntriesPage)
    listed = {"FileStatuses": {"FileStatus": [status_document(one) for one in page.entries]}}
    # How many remain is not counted; clients ask on while it is more than 0.
    return _json({"DirectoryListing": {"partialListing": listed, "remainingEntries": int(page.has_more)}})


async def _open(call: WebHdfsCall) -> HttpReply | FileStream:
    parameters = call.parameters
    if parameters.flag("noredirect"):
        return _json({"Location": _here(call, "OPEN")})
    offset, length = parameters.number("offset") or 0, parameters.number("length")
    found = await call.query(ReadFile(call.path, offset, length))
    assert isinstance(found, FilePart | FilePlace)
    wanted = found.size - offset if length is None else min(length, found.size - offset)
    pieces = _pieces(call, found, offset, wanted)
    first = await anext(pieces)  # What cannot be read at all is an error, not half an answer.
    if len(first) == wanted:
        await pieces.aclose()
        return HttpReply(200, first, content_type=_BYTES)
    return FileStream(_BYTES, wanted, _led_by(first, pieces))


async def _led_by(first: bytes, pieces: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    async with aclosing(pieces):
        yield first
        async for piece in pieces:
            yield piece


async def _pieces(call: WebHdfsCall, found: FilePart | FilePlace, offset: int, wanted: int) -> AsyncGenerator[bytes]:
    """Iterate over what is wanted of a file, as it was at the first piece.

    Raises:
        FileError: Another one took its place meanwhile, or it is gone.

    """
    number, sent = found.number, 0
    while True:
        if isinstance(found, FilePlace):
            end = min(found.content.size, offset + wanted)
            async with aclosing(call.state.contents.pieces(found, offset + sent, end)) as pieces:
                async for piece in pieces:
                    yield piece
                    sent += len(piece)
        else:
            yield found.content
            sent += len(found.content)
        if sent >= wanted:
            return
        more = await call.query(ReadFile(call.path, offset + sent, wanted - sent, number))
        assert isinstance(more, FilePart | FilePlace)
        found = more


async def _sum(call: WebHdfsCall) -> HttpReply:
    return _json({"ContentSummary": sum_document(await _summed(call))})


async def _quota_usage(call: WebHdfsCall) -> HttpReply:
    return _json({"QuotaUsage": quota_document(await _summed(call))})


async def _places(call: WebHdfsCall) -> HttpReply:
    parameters = call.parameters
    found = place_document(
        await _shown(call), call.state.address, parameters.number("offset") or 0, parameters.number("length")
    )
    return _json({"BlockLocations": {"BlockLocation": found}})


async def _home(call: WebHdfsCall) -> HttpReply:
    return _json({"Path": f"/user/{call.owner}"})


async def _defaults(_call: WebHdfsCall) -> HttpReply:
    return _json(defaults_document())


async def _check_access(call: WebHdfsCall) -> HttpReply:
    wanted = call.parameters.text("fsaction", "r--")
    await _shown(call)
    unknown = [letter for letter in wanted if letter not in "rwx-"]
    if unknown or len(wanted) > 3:
        raise FileError(FileFault.INVALID, "parameter 'fsaction' is made of r, w, x and -")
    for letter, right in _ACTIONS.items():
        if letter in wanted and not call.may_do(right):
            raise HttpProblem(403, "not-allowed", f"{call.caller.principal} may not {right.value} at {call.path[:200]}")
    return _nothing()


# ---- writes


def _here(call: WebHdfsCall, operation: str) -> str:
    """Return the URL to which a content is sent, or from which it is read: this server takes it itself."""
    parameters, host = call.parameters, call.headers[b"host"].decode("latin-1")
    kept = "".join(
        f"&{name}={quote(parameters.text(name), safe='')}"
        for name in ("overwrite", "permission", "offset", "length", "user.name")
        if parameters.text(name)
    )
    scheme = call.state.url.partition("://")[0]
    return f"{scheme}://{host}{PREFIX}{quote(call.path)}?op={operation}&data=true{kept}"


def _sent_on(call: WebHdfsCall, operation: str) -> HttpReply | None:
    """Answer the first of the two requests by which contents are sent; None = it is the second."""
    if call.parameters.flag("data"):
        return None
    location = _here(call, operation)
    return _json({"Location": location}) if call.parameters.flag("noredirect") else _nothing(307, location)


async def _create(call: WebHdfsCall) -> HttpReply:
    parameters = call.parameters
    overwrite, permission = parameters.flag("overwrite"), parameters.permission("permission", _FILE_PERMISSION)
    sent_on = _sent_on(call, "CREATE")
    if sent_on is not None:
        return sent_on
    async with aclosing(call.pieces()) as pieces:
        begin = call.state.contents.create if call.state.writes_ledgers else None
        await write_file(call.execute, call.path, pieces, call.owner, permission, overwrite=overwrite, begin=begin)
    return _nothing(201, f"{call.state.url}{PREFIX}{quote(call.path)}")


async def _append(call: WebHdfsCall) -> HttpReply:
    sent_on = _sent_on(call, "APPEND")
    if sent_on is not None:
        return sent_on
    async with aclosing(call.pieces()) as pieces:
        async for piece in pieces:  # Each is there when it is written, as in HDFS.
            await call.execute(AppendFile(call.path, piece))
    return _nothing()


async def _make_directory(call: WebHdfsCall) -> HttpReply:
    permission = call.parameters.permission("permission", _DIRECTORY_PERMISSION)
    await call.execute(MakeDirectory(call.path, call.owner, permission))
    return _json({"boolean": True})


async def _rename(call: WebHdfsCall) -> HttpReply:
    said = call.parameters.text("renameoptions").upper()
    options = [one for one in said.split(",") if one not in ("", "NONE")]
    wanted = "" if not said else (options or ["NONE"])[0]
    rule = _RULES.get(wanted)
    if rule is None or len(options) > 1:
        raise FileError(FileFault.INVALID, f"renameoptions {said[:40]!r}: there are NONE and OVERWRITE")
    done = await call.execute(RenameEntry(call.path, call.parameters.demanded("destination"), rule))
    return _json({"boolean": done == FileDone()}) if rule is RenameRule.INTO else _nothing()


async def _delete(call: WebHdfsCall) -> HttpReply:
    done = await call.execute(DeleteEntry(call.path, call.parameters.flag("recursive")))
    return _json({"boolean": done == FileDone()})


async def _set_times(call: WebHdfsCall) -> HttpReply:
    times = [call.parameters.number(name) for name in ("modificationtime", "accesstime")]
    modified_ms, accessed_ms = (None if one is None or one < 0 else one for one in times)
    await call.execute(SetFileTimes(call.path, modified_ms, accessed_ms))
    return _nothing()


async def _set_permission(call: WebHdfsCall) -> HttpReply:
    permission = call.parameters.permission("permission", _DIRECTORY_PERMISSION)
    await call.execute(SetPermission(call.path, permission))
    return _nothing()


async def _set_quota(call: WebHdfsCall) -> HttpReply:
    bounds = [call.parameters.number(name) for name in ("namespacequota", "storagespacequota")]
    names_max, bytes_max = (None if one is None or one >= _UNSET else one for one in bounds)
    await call.execute(SetQuota(call.path, names_max, bytes_max))
    return _nothing()


OPERATIONS: Final[dict[str, WebHdfsOperation]] = {
    "GETFILESTATUS": WebHdfsOperation("GET", Right.STATE_READ, _status),
    "GETFILELINKSTATUS": WebHdfsOperation("GET", Right.STATE_READ, _status),
    "LISTSTATUS": WebHdfsOperation("GET", Right.STATE_READ, _list),
    "LISTSTATUS_BATCH": WebHdfsOperation("GET", Right.STATE_READ, _list_batch),
    "OPEN": WebHdfsOperation("GET", Right.STATE_READ, _open),
    "GETCONTENTSUMMARY": WebHdfsOperation("GET", Right.STATE_READ, _sum),
    "GETQUOTAUSAGE": WebHdfsOperation("GET", Right.STATE_READ, _quota_usage),
    "GETFILEBLOCKLOCATIONS": WebHdfsOperation("GET", Right.STATE_READ, _places),
    "GETHOMEDIRECTORY": WebHdfsOperation("GET", Right.STATE_READ, _home),
    "GETSERVERDEFAULTS": WebHdfsOperation("GET", Right.STATE_READ, _defaults),
    "CHECKACCESS": WebHdfsOperation("GET", Right.STATE_READ, _check_access),
    "CREATE": WebHdfsOperation("PUT", Right.STATE_WRITE, _create),
    "APPEND": WebHdfsOperation("POST", Right.STATE_WRITE, _append),
    "MKDIRS": WebHdfsOperation("PUT", Right.STATE_WRITE, _make_directory),
    "RENAME": WebHdfsOperation("PUT", Right.STATE_WRITE, _rename),
    "DELETE": WebHdfsOperation("DELETE", Right.STATE_WRITE, _delete),
    "SETTIMES": WebHdfsOperation("PUT", Right.STATE_WRITE, _set_times),
    "SETPERMISSION": WebHdfsOperation("PUT", Right.STATE_WRITE, _set_permission),
    "SETQUOTA": WebHdfsOperation("PUT", Right.GOVERN, _set_quota),
}
"""By name, as the parameter `op` has it."""


def operation_of(method: str, name: str) -> WebHdfsOperation:
    """Return what is asked for.

    Raises:
        HttpProblem: 400, 405: it is not served, or not by this method.

    """
    wanted = name.upper()
    found = OPERATIONS.get(wanted)
    if found is None:
        if not wanted:
            raise HttpProblem(400, "invalid", f"say what to do: {PREFIX}/PATH?op=GETFILESTATUS, for example")
        raise HttpProblem(
            405, "unsupported", f"operation {wanted[:40]!r} is not served here; there are {', '.join(OPERATIONS)}"
        )
    if method != found.method:
        raise HttpProblem(405, "method-not-allowed", f"operation {wanted} is asked for by {found.method}")
    return found
