"""Bugs to plant into what is passed on to the leader: `test_relayed_calls` must find each."""

from __future__ import annotations

from typing import Any

import pytest

from rsm_spark.core.freshness import LINEARIZABLE, STALE, Freshness
from rsm_spark.core.sessions import SessionTable, SessionVerdict
from rsm_spark.runtime.relaying import Relay
from rsm_spark.runtime.serving import Serving

__all__ = ["answers_whoever_leads", "forgets_what_was_applied", "passes_on_twice"]


def answers_whoever_leads(patch: pytest.MonkeyPatch) -> None:
    """Who is passed a read answers it, for who passes on must know that it leads."""
    submit = Serving.submit

    def answer(self: Serving, requests: Any, freshness: Freshness, owner: str = "") -> Any:
        leads = self.driver is not None and self.driver.accepts
        return submit(self, requests, STALE if freshness is LINEARIZABLE and not leads else freshness, owner)

    patch.setattr(Serving, "submit", answer)


def forgets_what_was_applied(patch: pytest.MonkeyPatch) -> None:
    """A command that comes by another way is taken for a new one."""
    judge = SessionTable.judge

    def judge_as_new(self: SessionTable, *arguments: Any) -> Any:
        verdict, reply = judge(self, *arguments)
        return (SessionVerdict.EXECUTE if verdict is SessionVerdict.REPEATED else verdict), reply

    patch.setattr(SessionTable, "judge", judge_as_new)


def passes_on_twice(patch: pytest.MonkeyPatch) -> None:
    """Each message is sent to the leader a second time: exactly once must bear it."""
    init = Relay.__init__

    def init_twice(self: Relay, client: Any, leader: Any, *others: Any) -> None:
        init(self, client, leader, *others)
        write = leader.write

        async def write_twice(text: Any) -> None:
            await write(text)
            await write(text)

        leader.write = write_twice

    patch.setattr(Relay, "__init__", init_twice)
