"""What clients want done."""

from __future__ import annotations

from rsm_spark.core.operation import Operation, StreamLimits


def test_an_operation_begins_unsent_and_without_an_outcome() -> None:
    operation = Operation(b"x", 1.0, "ticket")
    assert (operation.sequence, operation.is_unsure, operation.outcome, operation.is_query) == (0, False, None, False)


def test_one_message_of_the_default_limits_fits_the_wire() -> None:
    assert StreamLimits().message_bytes_max < 8 * 1024 * 1024
    assert StreamLimits().messages_in_flight_max == 2
