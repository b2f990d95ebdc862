"""Registration of the format "ledger_state" in an installed Spark; see `pyspark_ledger`. Never fails to import."""

from __future__ import annotations

from pyspark_ledger import source_or_stand_in

__all__ = ["DefaultSource"]

DefaultSource = source_or_stand_in("ledger_state", "connectors.state.source", "LedgerStateSource", caller=__name__)
