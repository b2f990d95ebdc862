"""Requests of one connection that are not answered: adds by runs, other requests by key, long polls.

Answers are matched here and nowhere else. Requests with equal keys are answered in the order in which they were
sent; the protocol sees to it that they are interchangeable (`ledger.wire.protocol`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from ledger.client.add_runs import AddBatch, AddRuns
from ledger.errors import RemoteProtocolError
from ledger.wire.codes import Status
from ledger.wire.packets import AddResponse, Response, UnsupportedResponse
from ledger.wire.protocol import Key, WireProtocol


class Asker(Protocol):
    """Sender of requests; called on the event loop, with whole batches. `token` is what it gave with a request."""

    def on_stored(self, bookie_id: str, tokens: Sequence[Any]) -> None:
        """Take the adds that were answered EOK."""
        ...

    def on_responses(self, bookie_id: str, responses: list[tuple[Any, Response]]) -> None:
        """Take all other answers."""
        ...

    def on_unanswered(self, bookie_id: str, tokens: Sequence[Any], reason: str) -> None:
        """Take the requests that will get no answer: the connection broke, or time is up."""
        ...


Operation: TypeAlias = tuple[Asker, Any]
"""Sender of a request, and its token."""

Tokens: TypeAlias = tuple[Asker, Sequence[Any]]
"""Sender of several requests, and their tokens."""


class InFlight:
    """The requests of one connection, from the moment they are queued for it."""

    def __init__(self, protocol: WireProtocol) -> None:
        self._protocol = protocol
        self.adds = AddRuns[Asker](protocol.stored_ids)
        # Key -> (when, who) of the oldest request with this key; those behind it wait in `_behind`.
        self._requests: dict[Key, tuple[float, Operation]] = {}
        # Invariant: no queue is empty, and each key is in `_requests`.
        self._behind: dict[Key, deque[tuple[float, Operation]]] = {}
        # Requests that the bookie may hold -> (deadline, who).
        self._polls: dict[Key, tuple[float, Operation]] = {}
        # Key -> how many requests were reported as unanswered: their answers are late, not wrong.
        self._late: dict[Key, int] = {}

    @property
    def late_count(self) -> int:
        """Requests that were given up and not answered since."""
        return len(self._late) + self.adds.late_count

    def add_batch(self, batch: AddBatch[Asker], now: float) -> None:
        """Take adds that are sent now."""
        self.adds.add(batch, now)

    def add_request(self, key: Key, operation: Operation, now: float) -> None:
        """Take a request that is sent now."""
        if key in self._requests:
            self._behind.setdefault(key, deque()).append((now, operation))
        else:
            self._requests[key] = (now, operation)

    def add_poll(self, key: Key, operation: Operation, deadline: float) -> None:
        """Take a request that may be answered until `deadline`; its key is unique."""
        self._polls[key] = (deadline, operation)

    def take(self, packet: bytes | memoryview) -> list[tuple[Asker, Any, Response]]:
        """Decode a response and find what it answers; nothing if that was given up before.

        Raises:
            RemoteProtocolError: It is no response, or answers what was not asked, or twice; or we are not let in.

        """
        response, key = self._protocol.decode(packet)
        found = self._take_request(key) or self._polls.pop(key, None)
        if found is not None:
            asker, token = found[1]
            return [(asker, token, response)]
        if isinstance(response, AddResponse):
            stored = self._protocol.stored_frame(response)
            taken = self.adds.take(response.ledger_id, response.entry_id, stored)
            if taken is not None:
                return [(asker, token, response) for asker, entry_ids in taken for token in entry_ids]
        count = self._late.pop(key, 0)
        if not count:
            check_admitted(response)
            raise RemoteProtocolError(f"its answer belongs to no request, or is a second one: {response!r:.200}")
        if count > 1:
            self._late[key] = count - 1
        return []

    def overdue(self, now: float, limit_s: float) -> list[Tokens]:
        """Give up what was sent `limit_s` ago or has passed its deadline, and return it."""
        given_up: list[Tokens] = list(self.adds.overdue(now - limit_s))
        late = [(key, who) for key, (sent_at, who) in self._requests.items() if now - sent_at >= limit_s]
        for key, (asker, token) in late:
            self._take_request(key)
            self._late[key] = self._late.get(key, 0) + 1
            given_up.append((asker, (token,)))
        for key, (deadline, (asker, token)) in list(self._polls.items()):
            if now >= deadline:
                del self._polls[key]
                self._late[key] = 1
                given_up.append((asker, (token,)))
        return given_up

    def clear(self) -> list[Tokens]:
        """Forget everything, because the connection is gone; return what was not answered."""
        rest: list[Tokens] = list(self.adds.clear())
        operations = [operation for _, operation in self._requests.values()]
        operations += [operation for queue in self._behind.values() for _, operation in queue]
        operations += [operation for _, operation in self._polls.values()]
        self._requests.clear()
        self._behind.clear()
        self._polls.clear()
        self._late.clear()
        return rest + [(asker, (token,)) for asker, token in operations]

    def _take_request(self, key: Key) -> tuple[float, Operation] | None:
        found = self._requests.pop(key, None)
        if found is not None and self._behind:
            queue = self._behind.get(key)
            if queue is not None:
                self._requests[key] = queue.popleft()
                if not queue:
                    del self._behind[key]
        return found


def check_admitted(response: Response) -> None:
    """Raise if the bookie says no more than that we are not let in: it does not know which request it answers.

    Raises:
        RemoteProtocolError: It demands a log-in, or TLS.

    """
    if isinstance(response, UnsupportedResponse) and response.status == Status.EUA:
        raise RemoteProtocolError(
            f"it demands a log-in (AUTH) or TLS before {response.operation.name}: set `login` (RSM_CLIENT__AUTH_FILE) "
            "or `tls` (RSM_CLIENT__TLS_CA)"
        )


def joined(runs: list[Sequence[Any]]) -> Sequence[Any]:
    """Return the tokens of all runs in order; consecutive ranges, which is what they mostly are, stay a range."""
    first = runs[0]
    if len(runs) == 1:
        return first
    if not isinstance(first, range):
        return [token for run in runs for token in run]
    end = first.stop
    for run in runs[1:]:
        if not isinstance(run, range) or run.start != end:
            return [token for run in runs for token in run]
        end = run.stop
    return range(first.start, end)
