"""A client that sends a writer's commands: each is applied once, whichever process sends it, and however often.

    async with await WriterClient.connect("orders") as writer:
        reply = await writer.send(WriterMark(...))      # the machine's reply; b"" if it was applied before

What the state knows of writers makes it safe to send a command again in another session: so this client waits through
failovers, full queues and sessions that have expired, as long as its patience lasts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from rsm_spark.client.service_client import Reply, ServiceClient
from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.core.typed_calls import refusal_text
from rsm_spark.core.writer_marks import (
    MarkedReply,
    MarkedStatus,
    MarkKind,
    WriterMark,
    decode_marked_reply,
    encode_mark,
)
from rsm_spark.errors import (
    InvalidCommandError,
    NoLeaderError,
    OutcomeUnknownError,
    OverloadedError,
    WriterRefusedError,
)
from rsm_spark.transport.security import Security

PATIENCE_S = 120.0
_PAUSE_S = 0.05
_PAUSE_S_MAX = 2.0
_PASSING_ERRORS = (OverloadedError, NoLeaderError, OutcomeUnknownError)
_MADE = (MarkedStatus.APPLIED, MarkedStatus.DONE, MarkedStatus.DECLINED)
_ENDINGS = frozenset({MarkKind.END, MarkKind.WHOLE, MarkKind.FORGET})


class WriterClient:
    """See the module. For one event loop; any number of tasks may use it at once.

    Args:
        service: Client of the log's leader; closed with this one.
        patience_s: How long a command is sent again, at least.

    """

    def __init__(self, service: ServiceClient, *, patience_s: float = PATIENCE_S) -> None:
        self._service = service
        self._patience_s = patience_s

    async def __aenter__(self) -> Self:
        """Return the client."""
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    async def close(self) -> None:
        """Disconnect."""
        await self._service.close()

    @classmethod
    async def connect(
        cls,
        log: str,
        metadata_uri: str | None = None,
        *,
        rsm_root: str = DEFAULT_RSM_ROOT,
        patience_s: float = PATIENCE_S,
        security: Security | None = None,
    ) -> Self:
        """Return a client; see `ServiceClient.connect`.

        Raises:
            UsageError: A file of `security` cannot be used.
            MetadataUnavailableError: ZooKeeper does not answer.

        """
        service = await ServiceClient.connect(log, metadata_uri, rsm_root=rsm_root, security=security)
        return cls(service, patience_s=patience_s)

    async def send(
        self, mark: WriterMark, *, patience_s: float | None = None, is_busy: Callable[[bytes], bool] | None = None
    ) -> bytes:
        """Have a command applied, unless it was; return what the machine replied, b"" if it was applied before.

        Args:
            mark: The command.
            patience_s: How long it is sent again, at least; None = as the client says.
            is_busy: Tells of the machine's refusal whether it may be over soon, so that the command is sent again.

        Raises:
            WriterRefusedError: It breaks a rule of writers: another checkpoint, a later run, other rows.
            InvalidCommandError: The machine refuses it, or it does not fit an entry; the message has its reply.
            NoLeaderError, OverloadedError: Certainly not applied within the patience.
            OutcomeUnknownError: Perhaps applied: sending it again is safe.

        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + (self._patience_s if patience_s is None else patience_s)
        command = encode_mark(mark)
        is_unsure = False
        pause_s = _PAUSE_S
        while True:
            left_s = max(deadline_s - loop.time(), _PAUSE_S)
            try:
                reply = decode_marked_reply((await self._service.execute(command, timeout_s=left_s)).payload)
            except _PASSING_ERRORS as error:
                is_unsure |= isinstance(error, OutcomeUnknownError)
                if loop.time() >= deadline_s:
                    raise
            else:
                is_refused = is_busy is not None and reply.status is MarkedStatus.DECLINED and is_busy(reply.reply)
                if reply.status is not MarkedStatus.WAITING and (not is_refused or loop.time() >= deadline_s):
                    return _outcome(mark, reply, is_unsure=is_unsure)
                if loop.time() >= deadline_s:
                    raise WriterRefusedError(
                        f"writer {mark.writer!r}: {reply.reason}, and was not raised: a live replica may be of an "
                        "older version. Upgrade it, or look at `rsm log raise-format`"
                    )
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _PAUSE_S_MAX)

    async def send_calls(self, marks: Sequence[WriterMark], *, patience_s: float | None = None) -> list[MarkedReply]:
        """Have calls of one part made in this order; return of each what became of it: APPLIED, DONE or DECLINED.

        They are pipelined. A call that is behind one that was not made is not made either, so all from there on are
        sent again.

        Args:
            marks: Each with `is_call`.
            patience_s: How long they are sent again, at least; None = as the client says.

        Raises:
            WriterRefusedError, InvalidCommandError, NoLeaderError, OverloadedError, OutcomeUnknownError: See `send`;
                those before it are made.

        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + (self._patience_s if patience_s is None else patience_s)
        made: list[MarkedReply] = []
        pause_s = _PAUSE_S
        while len(made) < len(marks):
            left_s = max(deadline_s - loop.time(), _PAUSE_S)
            before = len(made)
            answers = await self._service.execute_each(map(encode_mark, marks[before:]), timeout_s=left_s)
            for answer in answers:
                if not isinstance(answer, Reply):
                    if not isinstance(answer, _PASSING_ERRORS) or loop.time() >= deadline_s:
                        raise answer
                    break
                reply = decode_marked_reply(answer.payload)
                if reply.status is MarkedStatus.WAITING and loop.time() < deadline_s:
                    break
                if reply.status not in _MADE:
                    raise WriterRefusedError(reply.reason)
                made.append(reply)
            if len(made) > before:
                pause_s = _PAUSE_S
            if len(made) < len(marks):
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _PAUSE_S_MAX)
        return made


def _outcome(mark: WriterMark, reply: MarkedReply, *, is_unsure: bool) -> bytes:
    """Return what the machine replied.

    Raises:
        WriterRefusedError, InvalidCommandError: See `WriterClient.send`.

    """
    match reply.status:
        case MarkedStatus.APPLIED | MarkedStatus.DONE:
            return reply.reply
        case MarkedStatus.DECLINED:
            raise InvalidCommandError(f"writer {mark.writer!r}, batch {mark.batch}: refused: {_said(reply.reply)}")
        case MarkedStatus.GONE if is_unsure and mark.kind in _ENDINGS:
            return b""  # An earlier sending has ended it.
        case _:
            raise WriterRefusedError(reply.reason)


def _said(reply: bytes) -> str:
    """Return the machine's refusal as far as it is text."""
    return refusal_text(reply) or "".join(letter for letter in reply.decode(errors="ignore") if letter.isprintable())
