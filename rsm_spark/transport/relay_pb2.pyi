from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Exchanged(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PassedCaller(_message.Message):
    __slots__ = ("log", "token", "names", "peer", "packed")
    LOG_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    PACKED_FIELD_NUMBER: _ClassVar[int]
    log: str
    token: bytes
    names: _containers.RepeatedScalarFieldContainer[str]
    peer: str
    packed: bool
    def __init__(self, log: _Optional[str] = ..., token: _Optional[bytes] = ..., names: _Optional[_Iterable[str]] = ..., peer: _Optional[str] = ..., packed: bool = ...) -> None: ...
