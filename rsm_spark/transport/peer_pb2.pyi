from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListRequest(_message.Message):
    __slots__ = ("log",)
    LOG_FIELD_NUMBER: _ClassVar[int]
    log: str
    def __init__(self, log: _Optional[str] = ...) -> None: ...

class ListAnswer(_message.Message):
    __slots__ = ("replica_id", "domain", "manifests", "damaged", "protected")
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    MANIFESTS_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    PROTECTED_FIELD_NUMBER: _ClassVar[int]
    replica_id: str
    domain: str
    manifests: _containers.RepeatedScalarFieldContainer[bytes]
    damaged: _containers.RepeatedScalarFieldContainer[bytes]
    protected: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, replica_id: _Optional[str] = ..., domain: _Optional[str] = ..., manifests: _Optional[_Iterable[bytes]] = ..., damaged: _Optional[_Iterable[bytes]] = ..., protected: _Optional[_Iterable[int]] = ...) -> None: ...

class DownloadRequest(_message.Message):
    __slots__ = ("log", "revision", "prefix_hash", "file", "offset")
    LOG_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    PREFIX_HASH_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    log: str
    revision: int
    prefix_hash: str
    file: str
    offset: int
    def __init__(self, log: _Optional[str] = ..., revision: _Optional[int] = ..., prefix_hash: _Optional[str] = ..., file: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("content",)
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    content: bytes
    def __init__(self, content: _Optional[bytes] = ...) -> None: ...

class Verified(_message.Message):
    __slots__ = ("place", "domain", "revision", "digest", "prefix_hash", "row_count", "by")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    PREFIX_HASH_FIELD_NUMBER: _ClassVar[int]
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    place: str
    domain: str
    revision: int
    digest: bytes
    prefix_hash: bytes
    row_count: int
    by: str
    def __init__(self, place: _Optional[str] = ..., domain: _Optional[str] = ..., revision: _Optional[int] = ..., digest: _Optional[bytes] = ..., prefix_hash: _Optional[bytes] = ..., row_count: _Optional[int] = ..., by: _Optional[str] = ...) -> None: ...

class Withdrawn(_message.Message):
    __slots__ = ("place", "by", "reason")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    place: str
    by: str
    reason: str
    def __init__(self, place: _Optional[str] = ..., by: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Diverged(_message.Message):
    __slots__ = ("revision", "digest", "by")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    revision: int
    digest: bytes
    by: str
    def __init__(self, revision: _Optional[int] = ..., digest: _Optional[bytes] = ..., by: _Optional[str] = ...) -> None: ...

class ReportRequest(_message.Message):
    __slots__ = ("log", "verified", "withdrawn", "diverged")
    LOG_FIELD_NUMBER: _ClassVar[int]
    VERIFIED_FIELD_NUMBER: _ClassVar[int]
    WITHDRAWN_FIELD_NUMBER: _ClassVar[int]
    DIVERGED_FIELD_NUMBER: _ClassVar[int]
    log: str
    verified: Verified
    withdrawn: Withdrawn
    diverged: Diverged
    def __init__(self, log: _Optional[str] = ..., verified: _Optional[_Union[Verified, _Mapping[str, object]]] = ..., withdrawn: _Optional[_Union[Withdrawn, _Mapping[str, object]]] = ..., diverged: _Optional[_Union[Diverged, _Mapping[str, object]]] = ...) -> None: ...

class ReadIndexRequest(_message.Message):
    __slots__ = ("log",)
    LOG_FIELD_NUMBER: _ClassVar[int]
    log: str
    def __init__(self, log: _Optional[str] = ...) -> None: ...

class ReadIndexAnswer(_message.Message):
    __slots__ = ("status", "revision", "clock")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    status: int
    revision: int
    clock: LeaderClock
    def __init__(self, status: _Optional[int] = ..., revision: _Optional[int] = ..., clock: _Optional[_Union[LeaderClock, _Mapping[str, object]]] = ...) -> None: ...

class LeaderClock(_message.Message):
    __slots__ = ("leader_epoch", "logged_ms")
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LOGGED_MS_FIELD_NUMBER: _ClassVar[int]
    leader_epoch: int
    logged_ms: int
    def __init__(self, leader_epoch: _Optional[int] = ..., logged_ms: _Optional[int] = ...) -> None: ...

class ReportAnswer(_message.Message):
    __slots__ = ("status", "revision", "payload")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    status: int
    revision: int
    payload: bytes
    def __init__(self, status: _Optional[int] = ..., revision: _Optional[int] = ..., payload: _Optional[bytes] = ...) -> None: ...
