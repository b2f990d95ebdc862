from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class NewRecord(_message.Message):
    __slots__ = ("payload", "key")
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    payload: bytes
    key: bytes
    def __init__(self, payload: _Optional[bytes] = ..., key: _Optional[bytes] = ...) -> None: ...

class AppendRequest(_message.Message):
    __slots__ = ("log", "producer", "sequence", "records", "partitions", "partition")
    LOG_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    log: str
    producer: str
    sequence: int
    records: _containers.RepeatedCompositeFieldContainer[NewRecord]
    partitions: int
    partition: int
    def __init__(self, log: _Optional[str] = ..., producer: _Optional[str] = ..., sequence: _Optional[int] = ..., records: _Optional[_Iterable[_Union[NewRecord, _Mapping[str, object]]]] = ..., partitions: _Optional[int] = ..., partition: _Optional[int] = ...) -> None: ...

class AppendAnswer(_message.Message):
    __slots__ = ("appended", "partitions_changed")
    APPENDED_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_CHANGED_FIELD_NUMBER: _ClassVar[int]
    appended: AppendedRecords
    partitions_changed: PartitionsChanged
    def __init__(self, appended: _Optional[_Union[AppendedRecords, _Mapping[str, object]]] = ..., partitions_changed: _Optional[_Union[PartitionsChanged, _Mapping[str, object]]] = ...) -> None: ...

class AppendedRecords(_message.Message):
    __slots__ = ("positions",)
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    positions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, positions: _Optional[_Iterable[int]] = ...) -> None: ...

class PartitionsChanged(_message.Message):
    __slots__ = ("partitions", "positions")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: int
    positions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, partitions: _Optional[int] = ..., positions: _Optional[_Iterable[int]] = ...) -> None: ...

class WriteBatchRequest(_message.Message):
    __slots__ = ("log", "writer", "kind", "checkpoint", "run", "batch", "part", "chunk", "row_count", "takes_over_from", "parts", "records", "is_passing", "txids")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[WriteBatchRequest.Kind]
        CHUNK: _ClassVar[WriteBatchRequest.Kind]
        WHOLE: _ClassVar[WriteBatchRequest.Kind]
        END: _ClassVar[WriteBatchRequest.Kind]
        BEGIN: _ClassVar[WriteBatchRequest.Kind]
        FORGET: _ClassVar[WriteBatchRequest.Kind]
    KIND_UNSPECIFIED: WriteBatchRequest.Kind
    CHUNK: WriteBatchRequest.Kind
    WHOLE: WriteBatchRequest.Kind
    END: WriteBatchRequest.Kind
    BEGIN: WriteBatchRequest.Kind
    FORGET: WriteBatchRequest.Kind
    class Part(_message.Message):
        __slots__ = ("part", "chunks")
        PART_FIELD_NUMBER: _ClassVar[int]
        CHUNKS_FIELD_NUMBER: _ClassVar[int]
        part: int
        chunks: int
        def __init__(self, part: _Optional[int] = ..., chunks: _Optional[int] = ...) -> None: ...
    LOG_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    TAKES_OVER_FROM_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    IS_PASSING_FIELD_NUMBER: _ClassVar[int]
    TXIDS_FIELD_NUMBER: _ClassVar[int]
    log: str
    writer: str
    kind: WriteBatchRequest.Kind
    checkpoint: str
    run: str
    batch: int
    part: int
    chunk: int
    row_count: int
    takes_over_from: str
    parts: _containers.RepeatedCompositeFieldContainer[WriteBatchRequest.Part]
    records: _containers.RepeatedCompositeFieldContainer[NewRecord]
    is_passing: bool
    txids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, log: _Optional[str] = ..., writer: _Optional[str] = ..., kind: _Optional[_Union[WriteBatchRequest.Kind, str]] = ..., checkpoint: _Optional[str] = ..., run: _Optional[str] = ..., batch: _Optional[int] = ..., part: _Optional[int] = ..., chunk: _Optional[int] = ..., row_count: _Optional[int] = ..., takes_over_from: _Optional[str] = ..., parts: _Optional[_Iterable[_Union[WriteBatchRequest.Part, _Mapping[str, object]]]] = ..., records: _Optional[_Iterable[_Union[NewRecord, _Mapping[str, object]]]] = ..., is_passing: bool = ..., txids: _Optional[_Iterable[int]] = ...) -> None: ...

class WriteBatchAnswer(_message.Message):
    __slots__ = ("status", "reason")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATUS_UNSPECIFIED: _ClassVar[WriteBatchAnswer.Status]
        APPLIED: _ClassVar[WriteBatchAnswer.Status]
        DONE: _ClassVar[WriteBatchAnswer.Status]
        REFUSED: _ClassVar[WriteBatchAnswer.Status]
        GONE: _ClassVar[WriteBatchAnswer.Status]
    STATUS_UNSPECIFIED: WriteBatchAnswer.Status
    APPLIED: WriteBatchAnswer.Status
    DONE: WriteBatchAnswer.Status
    REFUSED: WriteBatchAnswer.Status
    GONE: WriteBatchAnswer.Status
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    status: WriteBatchAnswer.Status
    reason: str
    def __init__(self, status: _Optional[_Union[WriteBatchAnswer.Status, str]] = ..., reason: _Optional[str] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("log", "start", "limit", "wait_ms")
    LOG_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    log: str
    start: str
    limit: int
    wait_ms: int
    def __init__(self, log: _Optional[str] = ..., start: _Optional[str] = ..., limit: _Optional[int] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class TailRequest(_message.Message):
    __slots__ = ("log", "start")
    LOG_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    log: str
    start: str
    def __init__(self, log: _Optional[str] = ..., start: _Optional[str] = ...) -> None: ...

class LogRecord(_message.Message):
    __slots__ = ("position", "txid", "key", "payload", "logged_ms", "partition", "next")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    TXID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    LOGGED_MS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    position: int
    txid: int
    key: bytes
    payload: bytes
    logged_ms: int
    partition: int
    next: str
    def __init__(self, position: _Optional[int] = ..., txid: _Optional[int] = ..., key: _Optional[bytes] = ..., payload: _Optional[bytes] = ..., logged_ms: _Optional[int] = ..., partition: _Optional[int] = ..., next: _Optional[str] = ...) -> None: ...

class Records(_message.Message):
    __slots__ = ("records", "next", "is_ended")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    IS_ENDED_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[LogRecord]
    next: str
    is_ended: bool
    def __init__(self, records: _Optional[_Iterable[_Union[LogRecord, _Mapping[str, object]]]] = ..., next: _Optional[str] = ..., is_ended: bool = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("prefix", "after", "limit")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    after: str
    limit: int
    def __init__(self, prefix: _Optional[str] = ..., after: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ListAnswer(_message.Message):
    __slots__ = ("logs", "has_more")
    LOGS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    logs: _containers.RepeatedScalarFieldContainer[str]
    has_more: bool
    def __init__(self, logs: _Optional[_Iterable[str]] = ..., has_more: bool = ...) -> None: ...

class DescribeRequest(_message.Message):
    __slots__ = ("log",)
    LOG_FIELD_NUMBER: _ClassVar[int]
    log: str
    def __init__(self, log: _Optional[str] = ...) -> None: ...

class LogDescription(_message.Message):
    __slots__ = ("log", "is_open", "partition_count", "plain_logs")
    LOG_FIELD_NUMBER: _ClassVar[int]
    IS_OPEN_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    PLAIN_LOGS_FIELD_NUMBER: _ClassVar[int]
    log: str
    is_open: bool
    partition_count: int
    plain_logs: _containers.RepeatedCompositeFieldContainer[PlainLogDescription]
    def __init__(self, log: _Optional[str] = ..., is_open: bool = ..., partition_count: _Optional[int] = ..., plain_logs: _Optional[_Iterable[_Union[PlainLogDescription, _Mapping[str, object]]]] = ...) -> None: ...

class PlainLogDescription(_message.Message):
    __slots__ = ("log", "log_id", "first_position", "closed_position", "ledgers", "closed_bytes", "epoch", "writer", "is_open", "retention_ms", "retention_bytes", "until_read", "truncated", "subscriptions")
    class Subscription(_message.Message):
        __slots__ = ("name", "position")
        NAME_FIELD_NUMBER: _ClassVar[int]
        POSITION_FIELD_NUMBER: _ClassVar[int]
        name: str
        position: int
        def __init__(self, name: _Optional[str] = ..., position: _Optional[int] = ...) -> None: ...
    LOG_FIELD_NUMBER: _ClassVar[int]
    LOG_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_POSITION_FIELD_NUMBER: _ClassVar[int]
    CLOSED_POSITION_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    CLOSED_BYTES_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    IS_OPEN_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_BYTES_FIELD_NUMBER: _ClassVar[int]
    UNTIL_READ_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    log: str
    log_id: str
    first_position: int
    closed_position: int
    ledgers: int
    closed_bytes: int
    epoch: int
    writer: str
    is_open: bool
    retention_ms: int
    retention_bytes: int
    until_read: bool
    truncated: int
    subscriptions: _containers.RepeatedCompositeFieldContainer[PlainLogDescription.Subscription]
    def __init__(self, log: _Optional[str] = ..., log_id: _Optional[str] = ..., first_position: _Optional[int] = ..., closed_position: _Optional[int] = ..., ledgers: _Optional[int] = ..., closed_bytes: _Optional[int] = ..., epoch: _Optional[int] = ..., writer: _Optional[str] = ..., is_open: bool = ..., retention_ms: _Optional[int] = ..., retention_bytes: _Optional[int] = ..., until_read: bool = ..., truncated: _Optional[int] = ..., subscriptions: _Optional[_Iterable[_Union[PlainLogDescription.Subscription, _Mapping[str, object]]]] = ...) -> None: ...

class CreateRequest(_message.Message):
    __slots__ = ("log", "retention_s", "retention_bytes", "until_read", "partitions")
    LOG_FIELD_NUMBER: _ClassVar[int]
    RETENTION_S_FIELD_NUMBER: _ClassVar[int]
    RETENTION_BYTES_FIELD_NUMBER: _ClassVar[int]
    UNTIL_READ_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    log: str
    retention_s: float
    retention_bytes: int
    until_read: bool
    partitions: int
    def __init__(self, log: _Optional[str] = ..., retention_s: _Optional[float] = ..., retention_bytes: _Optional[int] = ..., until_read: bool = ..., partitions: _Optional[int] = ...) -> None: ...

class CreateAnswer(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GrowRequest(_message.Message):
    __slots__ = ("log", "partitions")
    LOG_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    log: str
    partitions: int
    def __init__(self, log: _Optional[str] = ..., partitions: _Optional[int] = ...) -> None: ...

class GrowAnswer(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TruncateRequest(_message.Message):
    __slots__ = ("log", "position")
    LOG_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    log: str
    position: int
    def __init__(self, log: _Optional[str] = ..., position: _Optional[int] = ...) -> None: ...

class TruncateAnswer(_message.Message):
    __slots__ = ("ledger_ids", "last_position")
    LEDGER_IDS_FIELD_NUMBER: _ClassVar[int]
    LAST_POSITION_FIELD_NUMBER: _ClassVar[int]
    ledger_ids: _containers.RepeatedScalarFieldContainer[int]
    last_position: int
    def __init__(self, ledger_ids: _Optional[_Iterable[int]] = ..., last_position: _Optional[int] = ...) -> None: ...

class DeleteRequest(_message.Message):
    __slots__ = ("log",)
    LOG_FIELD_NUMBER: _ClassVar[int]
    log: str
    def __init__(self, log: _Optional[str] = ...) -> None: ...

class DeleteAnswer(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
