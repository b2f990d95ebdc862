"""Single tasks of brokers, looked at and acted on by the callers of a console, each with the rights of its own token.

The console shows the broker the token that its caller has shown it, and no other one: what a caller may see and do is
decided by the broker, as at the broker's own door, and the console has no log-in there that a caller could borrow. A
caller without a token asks the broker without one. A token travels in plain text on loopback alone.
"""

from __future__ import annotations

from typing import Annotated, Any, Final
from urllib.parse import urlencode

import msgspec
from msgspec import Meta

from ledger.decoding import json_decoder
from ledger.errors import UsageError
from ledger.http.problems import HttpProblem, retry_after
from ledger.http.replies import JSON_TYPE, HttpReply
from ledger.rights.table import Right, may
from ledger.tls import TlsSettings, client_context, is_loopback
from rsm_spark.client.http_connections import HttpConnectionPool, NotSentError, Response
from rsm_spark.client.http_wire import BadResponseError, Origin, parse_origin
from rsm_spark.console.calls import ConsoleCall, ConsoleRoute
from rsm_spark.console.console_turns import ConsoleTurns
from rsm_spark.console.core.callers import sees_all
from rsm_spark.transport.security import Security

_FRESH_S: Final = 10.0
_ANSWER_S: Final = 20.0
_AT_ONCE: Final = 8
_OF_CALLER: Final = 4
_CHOSEN_MAX: Final = 500
_TOLD_MAX: Final = 50
_DIGITS_MAX: Final = 16
_NAME_MAX: Final = 200
_PROBLEM_TYPE: Final = "application/problem+json"
_NOT_LEADER: Final = 307

_Name = Annotated[str, Meta(max_length=_NAME_MAX)]


class CallerView(msgspec.Struct, frozen=True):
    """Caller of a console, and what of the page is for it.

    Attributes:
        name: Of the caller.
        role: Of the same.
        tenant: Whose tasks alone it sees; "" = all.
        sees_cluster: It has the views of the whole cluster.
        sees_logs: It has those of logs: of all, or of the logs that it may read.
        sees_tasks: It has tasks.
        may_change_tasks: It may cancel, replay and delete them.

    """

    name: str
    role: str
    tenant: str
    sees_cluster: bool
    sees_logs: bool
    sees_tasks: bool
    may_change_tasks: bool


class BrokerNames(msgspec.Struct, frozen=True):
    """Names of the logs that have a broker."""

    logs: list[str]


class BrokerTasksQuery(msgspec.Struct, frozen=True):
    """Filters of tasks, as the broker takes them; what is left out may be anything."""

    status: _Name = ""
    type: _Name = ""
    worker: _Name = ""
    slot: _Name = ""
    key: _Name = ""
    tenant: _Name = ""
    after: Annotated[int, Meta(ge=0, le=2**53)] = 0
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    order: Annotated[str, Meta(pattern="^(oldest|newest)$")] = "newest"


class ChosenTasks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tasks that somebody has chosen, by id."""

    task_ids: Annotated[list[Annotated[int, Meta(ge=1, le=2**53)]], Meta(min_length=1, max_length=_CHOSEN_MAX)]


class _Said(msgspec.Struct, frozen=True):
    detail: str = ""
    reason: str = ""


class TaskRequests:
    """See the module.

    Raises:
        UsageError: A file of TLS cannot be used.

    """

    def __init__(self) -> None:
        # No certificate of its own: by that the broker would take a caller without a token for the console.
        ca = Security.from_environment().tls_ca
        self._pool = HttpConnectionPool(None if ca is None else client_context(TlsSettings(ca=ca)))
        self._turns = ConsoleTurns("requests about tasks", at_once=_AT_ONCE, of_caller=_OF_CALLER, answer_s=_ANSWER_S)

    def routes(self) -> list[ConsoleRoute]:
        """Return what is served."""
        read, base = Right.TASKS_READ, "/api/v1/brokers/{log}"
        return [
            ConsoleRoute("/api/v1/me", self.caller, Right.STATUS),
            ConsoleRoute("/api/v1/brokers", self.brokers, read),
            ConsoleRoute(f"{base}/tasks", self.tasks, read, BrokerTasksQuery),
            self._action(f"{base}/tasks/cancel", "tasks/cancel"),  # Before what takes any word for an id.
            ConsoleRoute(f"{base}/tasks/{{task_id}}", self.task, read),
            ConsoleRoute(f"{base}/tasks/{{task_id}}/explain", self.explain, read),
            self._action(f"{base}/dead-letters/replay", "dead-letters/replay"),
            self._action(f"{base}/dead-letters/delete", "dead-letters/delete"),
        ]

    def close(self) -> None:
        """Close what is connected."""
        self._pool.close()

    async def caller(self, call: ConsoleCall) -> CallerView:
        """Tell who asks."""
        caller = call.caller
        return CallerView(
            caller.name, caller.role.value, caller.tenant, sees_all(caller.principal),
            may(caller.principal, Right.STATE_READ), may(caller.principal, Right.TASKS_READ),
            may(caller.principal, Right.TASKS_WRITE),
        )  # fmt: skip

    async def brokers(self, call: ConsoleCall) -> BrokerNames:
        """Tell which logs have a broker: what is in them is another question."""
        view = await call.state.watcher.fresh(_FRESH_S)
        return BrokerNames([one.log for one in view.tasks])

    async def tasks(self, call: ConsoleCall) -> HttpReply:
        """Tell a page of tasks."""
        given = msgspec.structs.asdict(call.query)
        search = urlencode({name: value for name, value in given.items() if value})
        return await self._asked(call, "GET", f"tasks?{search}")

    async def task(self, call: ConsoleCall) -> HttpReply:
        """Tell one task."""
        return await self._asked(call, "GET", f"tasks/{_task_id(call)}")

    async def explain(self, call: ConsoleCall) -> HttpReply:
        """Tell why a task waits."""
        return await self._asked(call, "GET", f"tasks/{_task_id(call)}/explain")

    def _action(self, path: str, told: str) -> ConsoleRoute:
        async def act(call: ConsoleCall) -> HttpReply:
            chosen: ChosenTasks = call.body
            ids = chosen.task_ids
            more = f" and {len(ids) - _TOLD_MAX} more" if len(ids) > _TOLD_MAX else ""
            call.about = f", tasks {', '.join(map(str, ids[:_TOLD_MAX]))}{more}"
            return await self._asked(call, "POST", told, msgspec.json.encode(chosen))

        return ConsoleRoute(path, act, Right.TASKS_WRITE, body=ChosenTasks, is_audited=True)

    async def _asked(self, call: ConsoleCall, method: str, target: str, body: bytes | None = None) -> HttpReply:
        """Ask the broker of a log as the caller.

        Raises:
            HttpProblem: It has refused, has not answered, or there is none.
            TimeoutError: It takes too long.

        """
        log = call.values[0]
        async with self._turns.turn(call.caller.name):
            origin = await self._origin(call, log)
            headers = _headers(call, origin)
            if body is not None:
                headers["Content-Type"] = JSON_TYPE.decode()
            try:
                response = await self._pool.request(origin, method, f"/api/v1/{target}", headers, body)
            except NotSentError as error:
                self._pool.forget(origin)
                call.state.watcher.wake()
                raise HttpProblem(503, "not-now", f"the broker of {log}: {error}", headers=retry_after(1)) from None
            except (OSError, EOFError, BadResponseError) as error:
                self._pool.forget(origin)
                raise _broken_off(log, error, is_read=body is None) from None
            except UsageError as error:
                raise HttpProblem(400, "invalid", str(error)) from None
        if response.head.status == _NOT_LEADER:
            call.state.watcher.wake()
            said = f"the broker of {log} that was asked leads no more: nothing was done; ask again in a moment"
            raise HttpProblem(503, "not-leader", said, headers=retry_after(1))
        return _passed_on(call, log, response)

    async def _origin(self, call: ConsoleCall, log: str) -> Origin:
        view = await call.state.watcher.fresh(_FRESH_S)
        row = next((one for one in view.tasks if one.log == log), None)
        if row is None and any(one.log == log and not one.machine for one in view.logs):
            said = f"who serves {log} is not known at the moment: its replicas are away, or have not been asked yet"
            raise HttpProblem(503, "not-now", said, headers=retry_after(1))
        if row is None:
            raise HttpProblem(404, "no-such-log", f"no broker of a log {log[:_NAME_MAX]!r} is known here")
        if not row.url:
            raise HttpProblem(503, "not-now", row.problem, headers=retry_after(5))
        return parse_origin(row.url)


def _task_id(call: ConsoleCall) -> int:
    text = call.values[1]
    if not (text.isascii() and text.isdigit()) or len(text) > _DIGITS_MAX:
        raise HttpProblem(400, "invalid", "a task id is a number, 0 or more")
    return int(text)


def _headers(call: ConsoleCall, origin: Origin) -> dict[str, str]:
    headers = {"Accept": "application/json"}
    shown = call.headers.get(b"authorization")
    if shown is None and call.state.tokens is not None:
        said = "the console can show your token to a broker, and no certificate: ask with a token, or ask the broker"
        raise HttpProblem(403, "needs-token", said)
    if shown is not None:
        if not origin.is_tls and not is_loopback(origin.host):
            said = f"your token is not sent to {origin} in plain text: the broker needs a certificate"
            raise HttpProblem(503, "plain-text", said)
        headers["Authorization"] = shown.decode("latin-1")
    return headers


def _passed_on(call: ConsoleCall, log: str, response: Response) -> HttpReply:
    status = response.head.status
    if status in (401, 403):
        said = _said(response)
        if status == 401 and call.state.tokens is not None:
            # It is known here: to ask for another one would not help.
            raise HttpProblem(403, "unknown-there", f"the broker of {log} does not know your token: {said.detail}")
        raise HttpProblem(status, said.reason or "not-allowed", said.detail or f"the broker of {log} refused")
    kind = response.head.headers.get("content-type", "").partition(";")[0].strip()
    if kind not in (JSON_TYPE.decode(), _PROBLEM_TYPE):
        raise HttpProblem(502, "bad-answer", f"the broker of {log} answered {status} with what is no JSON")
    return HttpReply(status, response.body, (), kind.encode("ascii"))


def _said(response: Response) -> _Said:
    try:
        return json_decoder(_Said).decode(response.body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _Said()


def _broken_off(log: str, error: Any, *, is_read: bool) -> HttpProblem:
    why = f"the broker of {log} broke off: {str(error) or type(error).__name__}"
    if is_read:
        return HttpProblem(503, "not-now", why, headers=retry_after(1))
    return HttpProblem(504, "outcome-unknown", f"{why}; look at the tasks before you ask again")
