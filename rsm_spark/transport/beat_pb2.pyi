from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListenRequest(_message.Message):
    __slots__ = ("log", "incarnation")
    LOG_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    log: str
    incarnation: str
    def __init__(self, log: _Optional[str] = ..., incarnation: _Optional[str] = ...) -> None: ...

class Beat(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AskRequest(_message.Message):
    __slots__ = ("log", "incarnation")
    LOG_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    log: str
    incarnation: str
    def __init__(self, log: _Optional[str] = ..., incarnation: _Optional[str] = ...) -> None: ...

class AskAnswer(_message.Message):
    __slots__ = ("heard",)
    class Heard(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNKNOWN: _ClassVar[AskAnswer.Heard]
        HEARS: _ClassVar[AskAnswer.Heard]
        SILENT: _ClassVar[AskAnswer.Heard]
    UNKNOWN: AskAnswer.Heard
    HEARS: AskAnswer.Heard
    SILENT: AskAnswer.Heard
    HEARD_FIELD_NUMBER: _ClassVar[int]
    heard: AskAnswer.Heard
    def __init__(self, heard: _Optional[_Union[AskAnswer.Heard, str]] = ...) -> None: ...
