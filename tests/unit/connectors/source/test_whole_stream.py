from __future__ import annotations

import pytest
from pyspark.cloudpickle import dumps, loads
from pyspark.sql.pandas.types import from_arrow_schema

from connectors.errors import OptionError
from connectors.source.arrow import arrow_schema
from connectors.source.options import parse_options
from connectors.source.schema import RECORD_COLUMNS
from connectors.source.source import LedgerSource
from connectors.source.whole_stream import WholeStreamReader


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"log": "orders", "maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger"),
        ({"log": "orders", "maxBytesPerTrigger": "5"}, "maxBytesPerTrigger"),
        ({"log": "orders", "minOffsetsPerTrigger": "5"}, "minOffsetsPerTrigger"),
        ({"log": "orders", "consumer": "reads"}, "consumer"),
        ({"logPattern": "or.*"}, "logPattern"),
        ({"log": "orders", "startingOffsets": "snapshot", "lake": "/lake"}, "startingOffsets=snapshot"),
    ],
)
def test_what_needs_more_than_an_older_spark_tells_is_refused_with_the_first_offset(
    given: dict[str, str], name: str
) -> None:
    lowered = {key.lower(): value for key, value in given.items()}
    for ask in (WholeStreamReader.initialOffset, WholeStreamReader.latestOffset):
        reader = WholeStreamReader(lambda: parse_options(lowered, is_stream=True))
        with pytest.raises(OptionError, match=f"option {name} needs Spark 4.2"):
            ask(reader)


def test_what_is_wrong_with_options_is_told_with_the_first_offset_in_a_pickled_reader_too() -> None:
    source = LedgerSource({"log": "orders", "endingoffsets": "latest"})
    schema = from_arrow_schema(arrow_schema(RECORD_COLUMNS))
    reader = loads(dumps(WholeStreamReader(lambda: source._stream_options(schema))))
    with pytest.raises(OptionError, match="endingOffsets"):
        reader.initialOffset()
