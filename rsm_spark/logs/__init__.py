"""Plain logs: records that programs append and read themselves, without a state machine behind them.

Logs                                           names of a cluster's logs, their writers and readers
PlainLogWriter, PlainLogReader                 the two ends of a log
LogRecord                                      what a reader yields
PartitionedLogWriter, PartitionedLogReader     the two ends of a partitioned log
PartitionRecord, PartitionPosition             what its reader yields, and where its writer has put a record
"""

from __future__ import annotations

from rsm_spark.core.partition_layout import partition_log, partition_of
from rsm_spark.core.plain_log import (
    LogEndedError,
    LogRecord,
    PlainLogError,
    RecordTooLargeError,
    TransactionIdError,
)
from rsm_spark.log.log_policy import LogPolicy
from rsm_spark.log.reader_lock import ReaderLockError
from rsm_spark.logs.log_names import LogInfo, LogNameChange
from rsm_spark.logs.namespace import Logs
from rsm_spark.logs.partitioned_logs import PartitionedLogInfo
from rsm_spark.logs.partitioned_reader import PartitionedLogReader, PartitionRecord
from rsm_spark.logs.partitioned_writer import PartitionedLogWriter, PartitionPosition
from rsm_spark.logs.record_reader import PlainLogReader
from rsm_spark.logs.record_writer import PlainLogWriter

__all__ = [
    "LogEndedError",
    "LogInfo",
    "LogNameChange",
    "LogPolicy",
    "LogRecord",
    "Logs",
    "PartitionPosition",
    "PartitionRecord",
    "PartitionedLogInfo",
    "PartitionedLogReader",
    "PartitionedLogWriter",
    "PlainLogError",
    "PlainLogReader",
    "PlainLogWriter",
    "ReaderLockError",
    "RecordTooLargeError",
    "TransactionIdError",
    "partition_log",
    "partition_of",
]
