"""The sink inside `foreachBatch` needs a name, and counts by itself."""

from __future__ import annotations

import pytest

from connectors.errors import OptionError
from connectors.sink.foreach_batch import batch_writer


def test_what_is_wrong_is_told_when_the_writer_is_made() -> None:
    with pytest.raises(OptionError, match="option writer is missing"):
        batch_writer(log="totals")
    with pytest.raises(OptionError, match="option batch is the number that foreachBatch gives"):
        batch_writer(log="totals", writer="w", batch="1")
