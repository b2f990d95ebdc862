"""Which broker is asked about tasks, and what is said where none can be."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ledger.http.problems import HttpProblem
from rsm_spark.console.calls import ConsoleCall
from rsm_spark.console.core.view import LogRow, TasksView
from rsm_spark.console.task_requests import TaskRequests
from tests.unit.rsm_spark.console.views import view

pytestmark = pytest.mark.asyncio


def _call(log: str, *, headers: dict[bytes, bytes], tokens: object = None, **seen: Any) -> ConsoleCall:
    async def fresh(_wait_s: float) -> Any:
        return view(LogRow(log="orders", machine="map"), LogRow(log="lost", problem="no answer"), **seen)

    watcher: Any = SimpleNamespace(fresh=fresh)
    state: Any = SimpleNamespace(watcher=watcher, tokens=tokens)
    call = ConsoleCall(state, {}, None, None)  # type: ignore[arg-type]
    call.values = (log, "1")
    call.headers = headers
    return call


@pytest.mark.parametrize(
    ("log", "status", "words"),
    [
        ("nowhere", 404, "no broker of a log 'nowhere'"),
        ("orders", 404, "no broker of a log 'orders'"),
        ("lost", 503, "not known at the moment"),
        ("mute", 503, "serves no HTTP"),
        ("far", 503, "in plain text"),
    ],
)
async def test_where_no_broker_can_be_asked_it_is_said_why(log: str, status: int, words: str) -> None:
    tasks = (TasksView(log="mute", problem="serves no HTTP"), TasksView(log="far", url="http://10.1.2.3:80"))
    with pytest.raises(HttpProblem, match=words) as raised:
        await TaskRequests().task(_call(log, headers={b"authorization": b"Bearer secret"}, tasks=tasks))
    assert raised.value.status == status


async def test_a_certificate_cannot_be_shown_to_a_broker() -> None:
    near = (TasksView(log="near", url="https://127.0.0.1:1"),)
    with pytest.raises(HttpProblem, match="ask with a token") as raised:
        await TaskRequests().task(_call("near", headers={}, tokens=object(), tasks=near))
    assert raised.value.status == 403
