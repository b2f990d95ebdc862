"""Events of a broker as its stream sends them: bytes in, events out. No IO."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from broker.client.errors import BadAnswerError
from broker.client.shapes import Event
from ledger.decoding import json_decoder
from rsm_spark.client.event_lines import EventLines, SentEvent
from rsm_spark.client.http_wire import BadResponseError


class EventParser:
    """Puts events together from pieces of a body, wherever they are cut."""

    def __init__(self) -> None:
        self._lines = EventLines()

    def feed(self, piece: bytes) -> Iterator[Event]:
        """Take a piece; iterate over the events that are whole now.

        Raises:
            BadAnswerError: It is no stream of a broker's events.

        """
        try:
            for sent in self._lines.feed(piece):
                yield _event(sent)
        except BadResponseError as error:
            raise BadAnswerError(str(error)) from None


def _event(sent: SentEvent) -> Event:
    try:
        fields: dict[str, Any] = json_decoder(dict[str, Any]).decode(sent.text) if sent.text else {}
        return Event(int(sent.place or 0), sent.name, fields)
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadAnswerError(f"not an event of a broker: {error}") from None
