"""Code pools over HTTP: archives that workers load tasks' code from."""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from broker.api.call import ApiRequest
from broker.api.documents import as_document, document_type
from broker.api.routes import Access, Route
from broker.machine.commands import DeployCode, RemoveCode
from broker.machine.limits import CODE_BYTES_MAX
from broker.machine.queries import GetCode, ListCodes
from broker.machine.replies import Done, Refusal
from broker.machine.views import CodeArchive, Codes
from ledger.http.problems import HttpProblem
from ledger.http.replies import HttpReply, json_reply

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_ZIP_SIGNS = (b"PK\x03\x04", b"PK\x05\x06")
_ZIP = "application/zip"


class DeployQuery(msgspec.Struct, frozen=True):
    """After how long it is removed, if no task that has not ended needs it, in seconds; 0 = never."""

    ttl_s: Annotated[float, Meta(ge=0, le=100 * 365 * 86_400)] = 0.0


class Deployed(msgspec.Struct, frozen=True):
    """It is there from this revision on; the archive's SHA-256, hex."""

    revision: int
    sha256: str


class RemovedAt(msgspec.Struct, frozen=True):
    """It is gone from this revision on."""

    revision: int


async def _list(call: ApiRequest) -> HttpReply:
    found, revision = await call.expect(ListCodes(), Codes, "code pool")
    return json_reply(as_document(found), revision=revision)


async def _get(call: ApiRequest) -> HttpReply:
    code = call.values[0]
    found, revision = await call.expect(GetCode(code), CodeArchive, f"code pool {code!r}")
    headers = (
        (b"x-rsm-revision", b"%d" % revision),
        (b"x-rsm-sha256", found.sha256.encode("ascii", "replace")),
        (b"content-disposition", b"attachment"),
    )
    return HttpReply(200, found.archive, headers, _ZIP.encode())


async def _put(call: ApiRequest) -> HttpReply:
    code = call.values[0]
    if not _NAME.fullmatch(code):
        raise HttpProblem(
            400, Refusal.INVALID, "the name of a code pool is 1 to 64 letters a-z, digits, '-', '_' and '.', beginning "
            "with a letter or a digit"
        )  # fmt: skip
    archive: bytes = call.body
    if call.headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != _ZIP.encode():
        raise HttpProblem(415, "not-zip", f"send the archive as it is, with the header Content-Type: {_ZIP}")
    if not archive.startswith(_ZIP_SIGNS):
        raise HttpProblem(400, Refusal.INVALID, "the body is no zip archive")
    sha256 = hashlib.sha256(archive).hexdigest()
    done = await call.execute(DeployCode(code, archive, sha256, round(call.query.ttl_s * 1_000)), Done)
    return json_reply(Deployed(done.revision, sha256), revision=done.revision)


async def _delete(call: ApiRequest) -> HttpReply:
    done = await call.execute(RemoveCode(call.values[0]), Done)
    return json_reply(RemovedAt(done.revision), revision=done.revision)


def routes() -> list[Route]:
    """Return what is served of code pools."""
    path = "/api/v1/code/{code}"
    read: dict[str, Any] = {"access": Access.CLUSTER, "tag": "code"}
    admin: dict[str, Any] = {"access": Access.ADMIN, "tag": "code"}
    return [
        Route("GET", "/api/v1/code", _list, summary="List code pools by name",
              answers=[(200, document_type(Codes), "All of them.")], **read),
        Route("GET", path, _get, summary="Get the archive of a code pool", problems=[404],
              answers=[(200, _ZIP, "The archive.")], **read),
        Route("PUT", path, _put, summary="Deploy an archive; the same name with other bytes is refused", body=bytes,
              body_bytes_max=CODE_BYTES_MAX, query=DeployQuery, problems=[409],
              answers=[(200, Deployed, "It is there.")], **admin),
        Route("DELETE", path, _delete, summary="Forget an archive that no unfinished task needs", problems=[404, 409],
              answers=[(200, RemovedAt, "It is gone.")], **admin),
    ]  # fmt: skip
