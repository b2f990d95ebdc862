"""How a broker's history is kept."""

from __future__ import annotations

import msgspec

__all__ = ["HistorySettings"]


class HistorySettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a broker's history is kept.

    Attributes:
        log: Name of the broker's log.
        lake: Folder or URI that holds the tables.
        source: Further options of the source (`metadataUri`, `passwordFile`, …).
        trigger: Spark's interval between micro-batches.
        available_now: Apply what there is and end.
        records_per_batch_max: Records of one micro-batch: the driver holds their facts, and the rows that these change.
        bytes_per_batch_max: Payload of one micro-batch, such as "64m"; "" = no limit. With payloads the driver holds
            them too.
        payloads: Whether payloads and results are kept.
        begins_late: Whether a new history may begin with the first record that is left of a log that was trimmed.
        optimize_every: Commits after which small files are put together; 0 = never.
        vacuum_retain_hours: Afterwards files are deleted that no version of the last so many hours needs; None = never.
        storage_options: For `deltalake`.

    """

    log: str
    lake: str
    source: dict[str, str] = {}
    trigger: str = "5 seconds"
    available_now: bool = False
    records_per_batch_max: int = 50_000
    bytes_per_batch_max: str = "64m"
    payloads: bool = False
    begins_late: bool = False
    optimize_every: int = 100
    vacuum_retain_hours: int | None = None
    storage_options: dict[str, str] = {}
