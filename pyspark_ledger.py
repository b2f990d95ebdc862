"""What makes `.format("ledger")` work after an installation: Spark imports every module named `pyspark_*`.

Spark's look-up has no mercy: one module that fails to import hides every Python source of the session. So this one
never fails; if the source cannot be loaded, it is there all the same and says why when it is used.
"""

from __future__ import annotations

import sys

from pyspark.sql.datasource import DataSource

__all__ = ["DefaultSource"]


def _reason(error: Exception) -> str:
    """Tell why the source could not be loaded, and what to do."""
    package = sys.modules.get("connectors")
    places = [getattr(package, "__file__", None) or "", *map(str, getattr(package, "__path__", []))]
    is_ours = package is not None and hasattr(package, "RSM_SPARK")
    if package is not None and not is_ours:
        place = next((text for text in places if text), "somewhere else")
        return (
            f"source ledger: Python finds another package `connectors` first, {place}: rsm-spark's own is hidden by "
            "it. Rename that folder, or start Spark from another directory"
        )
    return (
        f"source ledger cannot be loaded by {sys.executable}: {type(error).__name__}: {error}. Install "
        "rsm-spark[spark] for this interpreter (Spark 4.2 is needed), or point PYSPARK_PYTHON at one that has it"
    )


try:
    from connectors.spark.source import LedgerSource as _Source
except Exception as _error:  # noqa: BLE001 - see above
    _WHY = _reason(_error)

    class DefaultSource(DataSource):
        """Stands in for the source, and says why it is not there."""

        @classmethod
        def name(cls) -> str:
            """Return the name for `format`."""
            return "ledger"

        def schema(self) -> str:
            """Say why.

            Raises:
                ImportError: Always.

            """
            raise ImportError(_WHY)

else:

    class DefaultSource(_Source):  # type: ignore[no-redef]
        """The source `ledger`."""
