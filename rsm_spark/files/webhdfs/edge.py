"""The ASGI application of the door: bounds, callers and errors in one place, in the order in which they are cheap.

    meant for us (Host, Origin) -> path -> who asks, how often -> operation -> may it -> its handler

`ledger.http.connection` bounds what comes before a request is whole. A short answer is one write; a long one goes in
pieces, as fast as its caller takes them, and counts against what all callers may have on its way.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import aclosing
from urllib.parse import unquote_to_bytes

from ledger.audit_lines import Refusals, tell
from ledger.errors import LedgerError
from ledger.http.asgi import Receive, Scope, Send
from ledger.http.connection_slots import ConnectionSlots
from ledger.http.exchanges import headers_of
from ledger.http.origins import HostCheck
from ledger.http.pools import Holder
from ledger.http.problems import HttpProblem, retry_after
from ledger.http.replies import HttpReply
from ledger.rights.table import Right, may
from rsm_spark.errors import OverloadedError, RsmError
from rsm_spark.files.errors import FileError, FileFault
from rsm_spark.files.webhdfs.call import WebHdfsCall, WebHdfsState
from rsm_spark.files.webhdfs.documents import RemoteFault, encoded, fault_of, later
from rsm_spark.files.webhdfs.operations import PREFIX, FileStream, operation_of
from rsm_spark.files.webhdfs.pages import WebHdfsPage
from rsm_spark.files.webhdfs.parameters import WebHdfsParameters
from rsm_spark.files.webhdfs.token_exchange import TOKEN_PATH, exchange

_LOGGER = logging.getLogger(__name__)
_HEADERS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_SHORT_BYTES = 64 * 1024
_PREFIX = PREFIX.encode()
_TOKEN_PATH = TOKEN_PATH.encode()
_REFUSED = frozenset({401, 403})


class WebHdfsEdge:
    """See the module.

    Args:
        state: What all requests share.
        hosts: Which names are its own.
        pages: What is served beside WebHDFS, by path.

    Attributes:
        state: The same.
        refusals: Who was refused.
        counts: Answers by operation and status.

    """

    def __init__(self, state: WebHdfsState, hosts: HostCheck, pages: Mapping[str, WebHdfsPage]) -> None:
        self.state = state
        self._hosts = hosts
        self._pages = pages
        self.refusals = Refusals()
        self.counts: dict[tuple[str, int], int] = {}

    @property
    def seats(self) -> ConnectionSlots:
        """Seats of its connections."""
        return self.state.seats

    def close(self) -> None:
        """End what waits for a long time: the server stops."""
        self.state.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        call = WebHdfsCall(self.state, scope, receive)
        reply: HttpReply | FileStream
        try:
            call.headers = headers_of(scope)
            self._hosts.check(call.headers.get(b"host"), call.headers.get(b"origin"))
            raw_path: bytes = scope["raw_path"]
            page = self._pages.get(raw_path.decode("latin-1"))
            if page is not None:
                reply = await self._page(page, call)
            elif raw_path == _TOKEN_PATH:
                reply = await exchange(call)
            else:
                call.path = _path_of(raw_path)
                call.parameters = WebHdfsParameters(scope["query_string"])
                reply = await self._operation(call)
        except Exception as error:  # noqa: BLE001 - the outermost place where an error can become an answer
            fault = self._fault(error, scope)
            headers = error.headers if isinstance(error, HttpProblem) else ()
            if fault.status in (429, 503) and not headers:
                headers = retry_after(1)
            reply = HttpReply(fault.status, encoded(fault.document()), headers, content_type=b"")
            self._note_refusal(fault, call)
        if isinstance(reply, FileStream):
            status = 200 if await self._stream(reply, call, send) else 599
        else:
            status = reply.status
            await self._send(reply, call, send)
        key = call.operation, status
        self.counts[key] = self.counts.get(key, 0) + 1

    async def _page(self, page: WebHdfsPage, call: WebHdfsCall) -> HttpReply:
        if call.scope["method"] not in ("GET", "HEAD"):
            raise HttpProblem(405, "method-not-allowed", "this page is asked for by GET")
        if page.right is not None:
            call.caller = self.state.caller(call.headers, call.scope, self.state.clock_s())
            _check_right(call, page.right)
        return await page.answer()

    async def _operation(self, call: WebHdfsCall) -> HttpReply | FileStream:
        state = self.state
        caller = call.caller = state.caller(call.headers, call.scope, state.clock_s())
        state.admit(caller)
        caller.running += 1
        try:
            state.seat(call.scope, caller)
            name = call.parameters.text("op").upper()
            operation = operation_of(call.scope["method"], name)
            call.operation = name
            _check_right(call, operation.right)
            if call.parameters.text("doas"):
                raise HttpProblem(403, "not-allowed", "nobody asks in the name of another here: leave doas out")
            reply = await operation.handler(call)
            if operation.right is Right.GOVERN:
                tell(_line(call, "done"))
            return reply
        finally:
            caller.running -= 1

    def _fault(self, error: Exception, scope: Scope) -> RemoteFault:
        known = fault_of(error)
        if known is not None:
            return known
        if isinstance(error, TimeoutError | LedgerError | RsmError):
            return later(error)
        number = os.urandom(6).hex()
        path = scope["raw_path"].decode("latin-1")
        extra = {"number": number, "path": path}
        _LOGGER.error("error %s: %s %s", number, scope["method"], path, exc_info=error, extra=extra)
        return RemoteFault(500, "java.io.IOException", f"an error of the server's own; its log tells more of {number}")

    def _note_refusal(self, fault: RemoteFault, call: WebHdfsCall) -> None:
        if fault.java_class.endswith(("AccessControlException", "SecurityException")) and fault.status in _REFUSED:
            said = _line(call, f"refused: {fault.message[:200]}")
            self.refusals.add(said, self.state.clock_s(), reason=str(fault.status))

    async def _stream(self, reply: FileStream, call: WebHdfsCall, send: Send) -> bool:
        """Send a long file, a piece of it at a time; return whether all of it went.

        Where it cannot be read on, the connection is broken off: its reader sees that bytes are missing.
        """
        headers = [(b"content-length", b"%d" % reply.size), *_HEADERS, (b"content-type", reply.content_type)]
        answers, holder = self.state.answers, self.state.holder(call.caller, call.scope)
        try:
            async with aclosing(reply.pieces) as pieces:
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                async for piece in pieces:
                    self._take_room(len(piece), holder)
                    try:
                        for at in range(0, len(piece), _SHORT_BYTES):
                            part = piece[at : at + _SHORT_BYTES]
                            await send({"type": "http.response.body", "body": part, "more_body": True})
                    finally:
                        answers.give(len(piece), holder)
            await send({"type": "http.response.body", "body": b""})
        except (LedgerError, RsmError) as error:
            _LOGGER.warning("%s was not sent whole: %s", call.path[:200], error, extra={"path": call.path})
            call.scope["extensions"]["rsm.abort"]()
            return False
        return True

    def _take_room(self, size: int, holder: Holder) -> None:
        """Count bytes of an answer.

        Raises:
            OverloadedError: Too many are on their way already.

        """
        if not (self.state.answers.has(size) and self.state.answers.has_for(size, holder)):
            raise OverloadedError("many long answers are on their way: take those first, or come again later")
        self.state.answers.take(size, holder)

    async def _send(self, reply: HttpReply, call: WebHdfsCall, send: Send) -> None:
        body = reply.body
        headers = [(b"content-length", b"%d" % len(body)), *_HEADERS, *reply.headers]
        if reply.content_type:
            headers.append((b"content-type", reply.content_type))
        at_once = call.scope.get("extensions", {}).get("rsm.answer")
        if at_once is not None and len(body) <= _SHORT_BYTES:
            await at_once(reply.status, headers, body)
            return
        answers, holder = self.state.answers, self.state.holder(call.caller, call.scope)
        try:
            self._take_room(len(body), holder)
        except OverloadedError as error:
            late = later(error)
            await self._send(HttpReply(late.status, encoded(late.document()), retry_after(1), b""), call, send)
            return
        try:
            await send({"type": "http.response.start", "status": reply.status, "headers": headers})
            for at in range(0, len(body), _SHORT_BYTES):
                more = at + _SHORT_BYTES < len(body)
                await send({"type": "http.response.body", "body": body[at : at + _SHORT_BYTES], "more_body": more})
            if not body:
                await send({"type": "http.response.body", "body": b""})
        finally:
            answers.give(len(body), holder)


def _path_of(raw_path: bytes) -> str:
    """Return the path in the store.

    Raises:
        HttpProblem: 404: it is none of WebHDFS.
        FileError: `INVALID`: it is not UTF-8.

    """
    if raw_path != _PREFIX and not raw_path.startswith(_PREFIX + b"/"):
        raise HttpProblem(404, "not-found", f"there is nothing here: WebHDFS is below {PREFIX}; see docs/files.md")
    try:
        return unquote_to_bytes(raw_path[len(_PREFIX) :]).decode() or "/"
    except UnicodeDecodeError:
        raise FileError(FileFault.INVALID, "the path is not UTF-8") from None


def _line(call: WebHdfsCall, outcome: str) -> dict[str, object]:
    client = call.scope.get("client")
    source = "" if client is None else f"{client[0]}:{client[1]}"
    action = f"{call.scope['method']} {call.parameters.text('op')[:40]}"
    name, role = call.caller.name, call.caller.role.value
    target = call.path[:200]
    return {"principal": name, "role": role, "source": source, "action": action, "target": target, "outcome": outcome}


def _check_right(call: WebHdfsCall, right: Right) -> None:
    principal = call.caller.principal
    if not may(principal, right):
        raise HttpProblem(403, "not-allowed", f"this needs the right to {right.value}: {principal} has it not")
    if not principal.may_log(call.state.log):
        raise HttpProblem(403, "not-allowed", f"{principal} may not touch this file store")
