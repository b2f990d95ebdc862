from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReadKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LINEARIZABLE: _ClassVar[ReadKind]
    SESSION: _ClassVar[ReadKind]
    BOUNDED: _ClassVar[ReadKind]
    STALE: _ClassVar[ReadKind]
    INDEXED: _ClassVar[ReadKind]

class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OK: _ClassVar[Status]
    NOT_LEADER: _ClassVar[Status]
    OUTCOME_UNKNOWN: _ClassVar[Status]
    SESSION_EXPIRED: _ClassVar[Status]
    SEQUENCE_GAP: _ClassVar[Status]
    OVERLOADED: _ClassVar[Status]
    TOO_LARGE: _ClassVar[Status]
    TOO_STALE: _ClassVar[Status]
    NOT_READY: _ClassVar[Status]
    REFUSED: _ClassVar[Status]
LINEARIZABLE: ReadKind
SESSION: ReadKind
BOUNDED: ReadKind
STALE: ReadKind
INDEXED: ReadKind
OK: Status
NOT_LEADER: Status
OUTCOME_UNKNOWN: Status
SESSION_EXPIRED: Status
SEQUENCE_GAP: Status
OVERLOADED: Status
TOO_LARGE: Status
TOO_STALE: Status
NOT_READY: Status
REFUSED: Status

class RequestBatch(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[Requests]
    def __init__(self, messages: _Optional[_Iterable[_Union[Requests, _Mapping[str, object]]]] = ...) -> None: ...

class AnswerBatch(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[Answers]
    def __init__(self, messages: _Optional[_Iterable[_Union[Answers, _Mapping[str, object]]]] = ...) -> None: ...

class Requests(_message.Message):
    __slots__ = ("message_id", "log", "session", "open_session", "answered_up_to", "sequences", "commands", "queries", "read", "min_revision", "max_lag_ms", "max_lag_revisions", "traces", "is_traced")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    OPEN_SESSION_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_UP_TO_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    MIN_REVISION_FIELD_NUMBER: _ClassVar[int]
    MAX_LAG_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_LAG_REVISIONS_FIELD_NUMBER: _ClassVar[int]
    TRACES_FIELD_NUMBER: _ClassVar[int]
    IS_TRACED_FIELD_NUMBER: _ClassVar[int]
    message_id: int
    log: str
    session: bytes
    open_session: bool
    answered_up_to: int
    sequences: _containers.RepeatedScalarFieldContainer[int]
    commands: _containers.RepeatedScalarFieldContainer[bytes]
    queries: _containers.RepeatedScalarFieldContainer[bytes]
    read: ReadKind
    min_revision: int
    max_lag_ms: int
    max_lag_revisions: int
    traces: _containers.RepeatedScalarFieldContainer[str]
    is_traced: bool
    def __init__(self, message_id: _Optional[int] = ..., log: _Optional[str] = ..., session: _Optional[bytes] = ..., open_session: bool = ..., answered_up_to: _Optional[int] = ..., sequences: _Optional[_Iterable[int]] = ..., commands: _Optional[_Iterable[bytes]] = ..., queries: _Optional[_Iterable[bytes]] = ..., read: _Optional[_Union[ReadKind, str]] = ..., min_revision: _Optional[int] = ..., max_lag_ms: _Optional[int] = ..., max_lag_revisions: _Optional[int] = ..., traces: _Optional[_Iterable[str]] = ..., is_traced: bool = ...) -> None: ...

class Answers(_message.Message):
    __slots__ = ("message_id", "statuses", "revisions", "payloads", "leader_address", "more")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    STATUSES_FIELD_NUMBER: _ClassVar[int]
    REVISIONS_FIELD_NUMBER: _ClassVar[int]
    PAYLOADS_FIELD_NUMBER: _ClassVar[int]
    LEADER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    message_id: int
    statuses: _containers.RepeatedScalarFieldContainer[Status]
    revisions: _containers.RepeatedScalarFieldContainer[int]
    payloads: _containers.RepeatedScalarFieldContainer[bytes]
    leader_address: str
    more: bool
    def __init__(self, message_id: _Optional[int] = ..., statuses: _Optional[_Iterable[_Union[Status, str]]] = ..., revisions: _Optional[_Iterable[int]] = ..., payloads: _Optional[_Iterable[bytes]] = ..., leader_address: _Optional[str] = ..., more: bool = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusAnswer(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...
