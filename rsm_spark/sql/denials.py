"""Statements that were refused for want of rights, as the audit of refusals is told of them. Pure.

They are refused where they run, behind the door that knows who asks; so the door looks at what is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from ledger.rights.principal import Principal
from rsm_spark.core.commands import Answer, AnswerStatus, Command, Query, Request
from rsm_spark.core.writer_marks import decode_marked_reply, is_marked
from rsm_spark.errors import InvalidCommandError
from rsm_spark.sql.messages import (
    SqlEnd,
    SqlFault,
    SqlStart,
    SqlStep,
    decode_reply,
    decode_slice,
    decode_step_reply,
    decode_transaction_request,
    is_of_transaction,
)

Refused = Callable[[Principal | None, str, str, str], object]
"""Told of a refusal: who (None = nobody that is known), what was asked, from where, why."""
DENIED_KIND: Final = "denied"
_MARK: Final = DENIED_KIND.encode()
_CHARS_MAX: Final = 300


def nobody_is_told(_who: Principal | None, _what: str, _source: str, _why: str) -> None:
    """Tell nobody."""


def shown_reason(text: str) -> str:
    """Return why something was refused, as a line of the audit has it: a client chooses names of tables in it."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:_CHARS_MAX])


def denial(request: Request, answer: Answer) -> str:
    """Return why a request was refused for want of rights to tables; "" = it was not.

    Args:
        request: As its client sent it.
        answer: To it.

    """
    if answer.status is not AnswerStatus.OK or _MARK not in answer.payload or not isinstance(request, Command | Query):
        return ""
    try:
        faults = _faults(request, answer.payload)
        return next((shown_reason(one.text) for one in faults if one is not None and one.kind == DENIED_KIND), "")
    except (InvalidCommandError, ValueError, msgspec.MsgspecError):
        return ""  # It is a reply of another kind: the kernel's own word about a command.


def _faults(request: Command | Query, payload: bytes) -> Iterable[SqlFault | None]:
    if isinstance(request, Command):
        return (decode_reply(decode_marked_reply(payload).reply if is_marked(request.payload) else payload).fault,)
    if not is_of_transaction(request.payload):
        return (decode_reply(payload).fault,)
    if isinstance(decode_transaction_request(request.payload), SqlStart | SqlStep | SqlEnd):
        reply = decode_step_reply(payload)
        return (reply.over, *(one.fault for one in reply.outcomes))
    return (decode_slice(payload).fault,)
