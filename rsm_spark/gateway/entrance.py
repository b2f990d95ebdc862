"""Entrance of a gateway that HTTP and gRPC share: who asks, how often, whether it may, and what is told of it.

who asks -> how often -> whose connection -> may it, this log -> (the door decodes, the route's handler answers)
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from typing import TypeVar

from ledger.audit_lines import Refusals, tell
from ledger.http.problems import HttpProblem
from ledger.rights.principal import Role
from ledger.rights.table import may
from rsm_spark.gateway.calls import GatewayCall, GatewayRoute, GatewayState, problem_of

_LOGGER = logging.getLogger(__name__)
_Decoded = TypeVar("_Decoded")
_REFUSED = frozenset({401, 403})
_DECODING_S = 0.000_2
_BYTE_S = 0.000_000_02


class GatewayEntrance:
    """See the module.

    Args:
        state: What all requests share.

    Attributes:
        state: The same.
        refusals: Who was refused.
        unexpected: Requests that ended in an error of our own.

    """

    def __init__(self, state: GatewayState) -> None:
        self.state = state
        self.refusals = Refusals()
        self.unexpected = 0

    @contextlib.contextmanager
    def admitted(self, route: GatewayRoute, call: GatewayCall) -> Iterator[None]:
        """Let a call in while the block runs.

        Raises:
            HttpProblem: 401, 403, 429: it is not let in.

        """
        state = self.state
        caller = call.caller = state.caller(call.headers, call.scope, state.clock_s())
        state.admit(caller)
        caller.running += 1
        try:
            state.seat(call.scope, caller)
            _check_right(route, call)
            yield
        finally:
            caller.running -= 1

    async def decode(self, call: GatewayCall, text: bytes, decode: Callable[[bytes], _Decoded]) -> _Decoded:
        """Decode what a caller has sent, when it is its turn.

        Raises:
            HttpProblem: 429: too much of it waits.

        """
        async with self.state.turns.turn(call.owner, _DECODING_S + len(text) * _BYTE_S, len(text)):
            return decode(text)

    def problem(self, error: Exception, route: GatewayRoute | None, call: GatewayCall, action: str) -> HttpProblem:
        """Return the answer to what went wrong; who is refused is told to who watches.

        Args:
            error: What was raised.
            route: None = there is none.
            call: As far as it came.
            action: What was asked for, for people.

        """
        problem = problem_of(error, call.target) or self._unexpected(error, call, action)
        if route is not None and problem.status in _REFUSED:
            said = _line(call, action, f"refused ({problem.reason})")
            self.refusals.add(said, self.state.clock_s(), reason=problem.reason)
        return problem

    def answered(self, route: GatewayRoute, call: GatewayCall, action: str, status: int) -> None:
        """Tell of a call that was answered, if each use of its route is told."""
        if route.is_audited and status not in _REFUSED:
            tell(_line(call, action, str(status)))

    def _unexpected(self, error: Exception, call: GatewayCall, action: str) -> HttpProblem:
        self.unexpected += 1
        number = os.urandom(6).hex()
        extra = {"number": number, "log": call.log}
        _LOGGER.error("error %s: %s %s", number, action, call.target or call.log, exc_info=error, extra=extra)
        return HttpProblem(
            500, "unexpected", f"an error of the gateway's own; its log tells more of error {number}", error=number
        )


def check_log(call: GatewayCall) -> None:
    """Refuse who may not touch the log of a call, if it is of one.

    Raises:
        HttpProblem: 403.

    """
    principal = call.caller.principal
    if call.log and not principal.may_log(call.log):
        raise HttpProblem(403, "not-allowed", f"{principal} may not touch this log")
    if call.log and principal.role is Role.CLIENT and principal.has_table_bounds:
        raise HttpProblem(403, "not-allowed", f"{principal} has the right to some SQL tables, not to a log's records")


def _check_right(route: GatewayRoute, call: GatewayCall) -> None:
    """Refuse who may not do this, or not to this log.

    Raises:
        HttpProblem: 403.

    """
    principal = call.caller.principal
    assert route.right is not None
    if not may(principal, route.right):
        raise HttpProblem(
            403, "not-allowed", f"{route.method} {route.path} needs the right to {route.right.value}: {principal} has "
            "it not"
        )  # fmt: skip
    check_log(call)


def _line(call: GatewayCall, action: str, outcome: str) -> dict[str, object]:
    client = call.scope.get("client")
    source = "" if client is None else f"{client[0]}:{client[1]}"
    name, role = call.caller.name, call.caller.role.value
    return {"principal": name, "role": role, "source": source, "action": action, "target": call.log, "outcome": outcome}
