"""Server-sent events: bytes in, events out. No IO."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rsm_spark.client.http_wire import BadResponseError

EVENT_BYTES_MAX = 8 * 1024 * 1024
"""Of one event: above any record of a log, in base64."""


class SentEvent(NamedTuple):
    """One server-sent event.

    Attributes:
        place: The id that was sent last; "" = none was.
        name: Of the event; "" = it has none.
        text: Its data.

    """

    place: str
    name: str
    text: str


class EventLines:
    """Puts events together from pieces of a body, wherever they are cut."""

    def __init__(self) -> None:
        self._rest = b""
        self._place = ""
        self._name = ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> Iterator[SentEvent]:
        """Take a piece; iterate over the events that are whole now. One without name and data is only a sign of life.

        Raises:
            BadResponseError: An event is larger than any may be.

        """
        *lines, self._rest = (self._rest + piece).replace(b"\r\n", b"\n").split(b"\n")
        if len(self._rest) > EVENT_BYTES_MAX:
            raise BadResponseError(f"an event of more than {EVENT_BYTES_MAX} bytes")
        for line in lines:
            if line:
                self._take(line.decode(errors="replace"))
                continue
            name, text = self._name, "\n".join(self._data)
            self._name, self._data = "", []
            if name or text:
                yield SentEvent(self._place, name, text)

    def _take(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "id":
                self._place = value
            case "event":
                self._name = value
            case "data":
                self._data.append(value)
            case _:
                pass  # A comment, or what a later version says.
