"""Two releases of a service, for `rsm serve rsm_demo.passengers:FlightCounts`: passengers' flights, and their miles.

A command is "passenger", or "passenger miles", which the second release alone understands; the reply is the flights.
"""

from __future__ import annotations

from typing import ClassVar

from rsm_spark import Decision, Field, FieldType, MachineDescription, TableDescription, TableMachine, upsert

_NAME = (Field("passenger", FieldType.STR),)
_FLIGHTS = Field("flights", FieldType.INT)
_FLOWN = 16
_BEFORE = TableDescription("passengers", _NAME, (_FLIGHTS,))
_NOW = TableDescription("passengers", _NAME, (_FLIGHTS, Field("miles", FieldType.INT, default=0)))


class FlightCounts(TableMachine):
    """Release 1."""

    description: ClassVar = MachineDescription("passengers", 1, (_BEFORE,), (upsert(_FLOWN, "flown", _BEFORE),))

    def decide(self, command: bytes, revision: int, now_ms: int) -> Decision:  # noqa: ARG002
        """Count a flight."""
        name = command.decode()
        (flights,) = self.get("passengers", name) or (0,)
        return Decision([(_FLOWN, (name, flights + 1))], b"%d" % (flights + 1))

    def query(self, query: bytes, revision: int) -> bytes:  # noqa: ARG002
        """Return the flights of a passenger."""
        return b"%d" % (self.get("passengers", query.decode()) or (0,))[0]


class MileCounts(FlightCounts):
    """Release 2: passengers collect miles."""

    description: ClassVar = MachineDescription("passengers", 2, (_NOW,), (upsert(_FLOWN, "flown", _NOW),))

    def decide(self, command: bytes, revision: int, now_ms: int) -> Decision:  # noqa: ARG002
        """Count a flight, and its miles."""
        name, _, miles = command.decode().partition(" ")
        flights, before = self.get("passengers", name) or (0, 0)
        return Decision([(_FLOWN, (name, flights + 1, before + int(miles or 0)))], b"%d" % (flights + 1))
