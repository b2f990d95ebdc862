from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FollowRequest(_message.Message):
    __slots__ = ("log", "ledger_id", "entry_id")
    LOG_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    log: str
    ledger_id: int
    entry_id: int
    def __init__(self, log: _Optional[str] = ..., ledger_id: _Optional[int] = ..., entry_id: _Optional[int] = ...) -> None: ...

class TailEntry(_message.Message):
    __slots__ = ("ledger_id", "entry_id", "payload")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    entry_id: int
    payload: bytes
    def __init__(self, ledger_id: _Optional[int] = ..., entry_id: _Optional[int] = ..., payload: _Optional[bytes] = ...) -> None: ...

class FollowAnswer(_message.Message):
    __slots__ = ("status", "leader_epoch", "entries")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        TOLD: _ClassVar[FollowAnswer.Status]
        NOT_HELD: _ClassVar[FollowAnswer.Status]
        NOT_LEADER: _ClassVar[FollowAnswer.Status]
    TOLD: FollowAnswer.Status
    NOT_HELD: FollowAnswer.Status
    NOT_LEADER: FollowAnswer.Status
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    status: FollowAnswer.Status
    leader_epoch: int
    entries: _containers.RepeatedCompositeFieldContainer[TailEntry]
    def __init__(self, status: _Optional[_Union[FollowAnswer.Status, str]] = ..., leader_epoch: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[TailEntry, _Mapping[str, object]]]] = ...) -> None: ...
