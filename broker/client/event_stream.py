"""Server-sent events: bytes in, events out. No IO."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from broker.client.errors import BadAnswerError
from broker.client.shapes import Event
from ledger.decoding import json_decoder

_EVENT_BYTES_MAX = 4 * 1024 * 1024


class EventParser:
    """Puts events together from pieces of a body, wherever they are cut."""

    def __init__(self) -> None:
        self._rest = b""
        self._id = ""
        self._name = ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> Iterator[Event]:
        """Take a piece; iterate over the events that are whole now.

        Raises:
            BadAnswerError: It is no stream of a broker's events.

        """
        *lines, self._rest = (self._rest + piece).replace(b"\r\n", b"\n").split(b"\n")
        if len(self._rest) > _EVENT_BYTES_MAX:
            raise BadAnswerError(f"an event of more than {_EVENT_BYTES_MAX} bytes")
        for line in lines:
            if line:
                self._take(line.decode(errors="replace"))
            else:
                event = self._whole()
                if event is not None:
                    yield event

    def _take(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "id":
                self._id = value
            case "event":
                self._name = value
            case "data":
                self._data.append(value)
            case _:
                pass  # A comment, or what a later version says.

    def _whole(self) -> Event | None:
        """Return the event that an empty line ends; None if it was only a sign of life."""
        name, data = self._name, "\n".join(self._data)
        self._name, self._data = "", []
        if not data and not name:
            return None
        try:
            fields: dict[str, Any] = json_decoder(dict[str, Any]).decode(data) if data else {}
            return Event(int(self._id or 0), name, fields)
        except (msgspec.MsgspecError, ValueError) as error:
            raise BadAnswerError(f"not an event of a broker: {error}") from None
