"""State that all requests of one broker's server share: that of any API, the broker, and the turns of its tenants."""

from __future__ import annotations

import time
from collections.abc import Callable

from broker.api.event_hub import EventHub
from broker.api.ports import Broker
from broker.api.settings import HttpSettings
from ledger.http.api_state import ApiState
from ledger.http.tokens import Tokens
from ledger.http.turn_queue import TurnQueue


class SharedState(ApiState):
    """State of one server that its requests share.

    Args:
        broker: Executes and answers.
        settings: See `HttpSettings`.
        tokens: Who may; None = everybody is the administrator.
        clock_s: Monotonic.
        wall_s: Wall clock.

    Attributes:
        hub: Makes the events.
        turns: Where requests wait until it is their tenant's turn.

    """

    def __init__(
        self,
        broker: Broker,
        settings: HttpSettings,
        tokens: Tokens | None,
        *,
        clock_s: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(settings, tokens, clock_s=clock_s, wall_s=wall_s)
        self.broker = broker
        self.settings = settings
        self.hub = EventHub(broker)
        self.turns = TurnQueue(settings.bodies_bytes_max // 2, broker.weight_of)
