"""The description of the log."""

from __future__ import annotations

from broker.machine.tables import BROKER_DESCRIPTION, RecordType
from rsm_spark.core.description_rules import check_description


def test_the_description_can_be_folded_by_and_names_every_record() -> None:
    check_description(BROKER_DESCRIPTION)
    numbers = {value for name, value in vars(RecordType).items() if name.isupper()}
    assert {record.type for record in BROKER_DESCRIPTION.records} == numbers
