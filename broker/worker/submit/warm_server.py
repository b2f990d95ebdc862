"""One warm server of Spark Connect as its worker sees it; the process is `connectors.pool.warm_server`."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

import msgspec

from broker.machine.worker_messages import AssignedRun
from broker.worker.context import TaskError
from broker.worker.submit.keeper import KeeperPlan
from broker.worker.submit.kept import KeptSubmission
from broker.worker.submit.log import OutputTail
from ledger.decoding import json_decoder

_CLOSE_S = 20.0
"""A server that has not closed a run's sessions by then is ended: what they compute has to end."""
_FORCE_S = 15.0
_LINE_BYTES_MAX = 4096
_LOG_BYTES = 3_000


class _Told(msgspec.Struct, frozen=True):
    """Line of a server; what it has not said is empty."""

    number: int = 0
    error: str = ""
    application_id: str = ""
    ui: str = ""
    remote: str = ""
    token: str = ""
    session_id: str = ""
    jobs: str = ""


class WarmSession(msgspec.Struct, frozen=True):
    """Session of one run at a server.

    Attributes:
        application_id: Spark's, of the server.
        ui: Address of the server's pages; "" = there are none.
        remote: Address by which the program connects.
        token: That the server wants to see.
        session_id: Of the session.
        jobs: Beginning of the tags of the run's jobs.

    """

    application_id: str
    ui: str
    remote: str
    token: str
    session_id: str
    jobs: str

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which a program of Spark finds it."""
        return {"SPARK_REMOTE": self.remote, "SPARK_CONNECT_AUTHENTICATE_TOKEN": self.token}

    @property
    def port(self) -> int:
        """Port of the server's pages; 0 = there are none."""
        try:
            return urlsplit(self.ui).port or 0
        except ValueError:
            return 0


class WarmServer:
    """See the module. Used on one loop.

    Args:
        tenant: Whose applications it serves: nobody else's.

    Attributes:
        over: Why it has ended, when it has.

    """

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        loop = asyncio.get_running_loop()
        self.over: asyncio.Future[str] = loop.create_future()
        self._serving: asyncio.Future[_Told] = loop.create_future()
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[_Told]] = {}
        self._lost: dict[int, Callable[[str], None]] = {}
        self._kept: KeptSubmission | None = None
        self._is_ending = False
        self._output = OutputTail(_LINE_BYTES_MAX, self._on_line)
        self._log = OutputTail(_LOG_BYTES)

    @property
    def is_free(self) -> bool:
        """True if no run is here."""
        return not self._lost

    @property
    def is_ending(self) -> bool:
        """True if it takes no more runs."""
        return self._is_ending or self.over.done()

    async def live(self, plan: KeeperPlan) -> None:
        """Be there until it ends, whoever ends it.

        Raises:
            OSError: It cannot be started.

        """
        self._kept = await KeptSubmission.start(plan, self._output.feed, self._log.feed)
        if self._is_ending:
            self.end()
        code = await self._kept.wait()
        how = f"signal {code - 128}" if code >= 128 else f"exit code {code}"
        self.fail(f"the warm server of this tenant has ended: {how}\n{self._log.text.strip()}".strip())

    def fail(self, why: str) -> None:
        """Tell everybody that it is no more."""
        if self.over.done():
            return
        self.over.set_result(why)
        for waiting in (self._serving, *self._answers.values()):
            if not waiting.done():
                waiting.set_exception(TaskError(f"spark_submit: {why}"))
                waiting.exception()  # Nobody may be waiting.
        for on_lost in list(self._lost.values()):
            on_lost(why)

    def end(self) -> None:
        """Have it end; by force if it takes long."""
        self._is_ending = True
        if self._kept is not None:
            self._kept.end()
            asyncio.get_running_loop().call_later(_FORCE_S, self._kept.kill)

    def hold(self, run: AssignedRun, on_lost: Callable[[str], None]) -> None:
        """Keep it for a run.

        Args:
            run: Until `leave`.
            on_lost: Hears why, if the server ends before.

        """
        self._lost[run.assignment_id] = on_lost

    async def open(self, run: AssignedRun, conf: Mapping[str, str]) -> WarmSession:
        """Wait until it serves, and open the session of a run.

        Raises:
            TaskError: It has ended, or a setting is none of a session.

        """
        began = await asyncio.shield(self._serving)
        told = await self._ask({"open": [run.task_id, run.assignment_id], "conf": dict(conf)})
        if told.error:
            raise TaskError(f"spark_submit: the session cannot be opened: {told.error}")
        return WarmSession(began.application_id, began.ui, told.remote, told.token, told.session_id, told.jobs)

    async def leave(self, run: AssignedRun) -> None:
        """Close the sessions of a run; it raises nothing, and what they compute is over then."""
        self._lost[run.assignment_id] = _nothing  # Its program has ended.
        try:
            if self._serving.done() and not self.over.done():
                async with asyncio.timeout(_CLOSE_S):
                    told = await self._ask({"close": [run.task_id, run.assignment_id]})
                if told.error:
                    self.end()
        except TimeoutError:
            self.end()
        except TaskError:
            pass
        if self._is_ending:
            await asyncio.shield(self.over)
        del self._lost[run.assignment_id]

    async def _ask(self, asked: dict[str, object]) -> _Told:
        if self.over.done():
            raise TaskError(f"spark_submit: {self.over.result()}")
        assert self._kept is not None, "it has told that it serves"
        number = next(self._numbers)
        answer: asyncio.Future[_Told] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            self._kept.say(msgspec.json.encode({"number": number, **asked}))
            return await answer
        finally:
            del self._answers[number]

    def _on_line(self, line: str) -> None:
        # Code of the tenant may have found a way to write here: what it can forge is its own.
        with contextlib.suppress(msgspec.MsgspecError):
            told = json_decoder(_Told).decode(line)
            waiting = self._answers.get(told.number) if told.number else self._serving
            if waiting is not None and not waiting.done():
                waiting.set_result(told)


def _nothing(_why: str) -> None:
    pass
