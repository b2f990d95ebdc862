from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class WatchRequest(_message.Message):
    __slots__ = ("log", "table", "start", "end", "from_revision", "progress_ms", "types", "old_rows")
    LOG_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    FROM_REVISION_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_MS_FIELD_NUMBER: _ClassVar[int]
    TYPES_FIELD_NUMBER: _ClassVar[int]
    OLD_ROWS_FIELD_NUMBER: _ClassVar[int]
    log: str
    table: str
    start: bytes
    end: bytes
    from_revision: int
    progress_ms: int
    types: _containers.RepeatedScalarFieldContainer[int]
    old_rows: bool
    def __init__(self, log: _Optional[str] = ..., table: _Optional[str] = ..., start: _Optional[bytes] = ..., end: _Optional[bytes] = ..., from_revision: _Optional[int] = ..., progress_ms: _Optional[int] = ..., types: _Optional[_Iterable[int]] = ..., old_rows: bool = ...) -> None: ...

class Changes(_message.Message):
    __slots__ = ("revisions", "types", "keys", "rows", "logged_ms", "up_to", "old_rows", "old_revisions", "mod_revisions")
    REVISIONS_FIELD_NUMBER: _ClassVar[int]
    TYPES_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    LOGGED_MS_FIELD_NUMBER: _ClassVar[int]
    UP_TO_FIELD_NUMBER: _ClassVar[int]
    OLD_ROWS_FIELD_NUMBER: _ClassVar[int]
    OLD_REVISIONS_FIELD_NUMBER: _ClassVar[int]
    MOD_REVISIONS_FIELD_NUMBER: _ClassVar[int]
    revisions: _containers.RepeatedScalarFieldContainer[int]
    types: _containers.RepeatedScalarFieldContainer[int]
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    rows: _containers.RepeatedScalarFieldContainer[bytes]
    logged_ms: _containers.RepeatedScalarFieldContainer[int]
    up_to: int
    old_rows: _containers.RepeatedScalarFieldContainer[bytes]
    old_revisions: _containers.RepeatedScalarFieldContainer[int]
    mod_revisions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, revisions: _Optional[_Iterable[int]] = ..., types: _Optional[_Iterable[int]] = ..., keys: _Optional[_Iterable[bytes]] = ..., rows: _Optional[_Iterable[bytes]] = ..., logged_ms: _Optional[_Iterable[int]] = ..., up_to: _Optional[int] = ..., old_rows: _Optional[_Iterable[bytes]] = ..., old_revisions: _Optional[_Iterable[int]] = ..., mod_revisions: _Optional[_Iterable[int]] = ...) -> None: ...
