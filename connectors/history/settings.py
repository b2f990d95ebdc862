"""Settings of a broker's history."""

from __future__ import annotations

from connectors.delta.settings import StreamSettings


class HistorySettings(StreamSettings, frozen=True, kw_only=True):
    """Settings of a broker's history; of a micro-batch the driver holds the facts, and the rows that these change.

    Attributes:
        lake: Folder or URI that holds the tables.
        payloads: Whether payloads and results are kept; the driver holds them too then.
        begins_late: Whether a new history may begin with the first record that is left of a log that was trimmed.
        optimize_every: Commits of a table after which its small files are put together; 0 = never.
        vacuum_retain_hours: Afterwards files are deleted that no version of the last so many hours needs; None = never.

    """

    lake: str
    trigger: str = "5 seconds"
    records_per_batch_max: int = 50_000
    payloads: bool = False
    begins_late: bool = False
    optimize_every: int = 100
    vacuum_retain_hours: int | None = None
