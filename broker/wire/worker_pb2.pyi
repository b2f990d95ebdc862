from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Count(_message.Message):
    __slots__ = ("name", "amount")
    NAME_FIELD_NUMBER: _ClassVar[int]
    AMOUNT_FIELD_NUMBER: _ClassVar[int]
    name: str
    amount: int
    def __init__(self, name: _Optional[str] = ..., amount: _Optional[int] = ...) -> None: ...

class Offer(_message.Message):
    __slots__ = ("threads_max", "threads_by_type", "any_type_threads", "groups", "excluded_groups", "resources", "tenant_share_percent")
    THREADS_MAX_FIELD_NUMBER: _ClassVar[int]
    THREADS_BY_TYPE_FIELD_NUMBER: _ClassVar[int]
    ANY_TYPE_THREADS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    EXCLUDED_GROUPS_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    TENANT_SHARE_PERCENT_FIELD_NUMBER: _ClassVar[int]
    threads_max: int
    threads_by_type: _containers.RepeatedCompositeFieldContainer[Count]
    any_type_threads: int
    groups: _containers.RepeatedScalarFieldContainer[int]
    excluded_groups: _containers.RepeatedScalarFieldContainer[int]
    resources: _containers.RepeatedCompositeFieldContainer[Count]
    tenant_share_percent: int
    def __init__(self, threads_max: _Optional[int] = ..., threads_by_type: _Optional[_Iterable[_Union[Count, _Mapping[str, object]]]] = ..., any_type_threads: _Optional[int] = ..., groups: _Optional[_Iterable[int]] = ..., excluded_groups: _Optional[_Iterable[int]] = ..., resources: _Optional[_Iterable[_Union[Count, _Mapping[str, object]]]] = ..., tenant_share_percent: _Optional[int] = ...) -> None: ...

class Run(_message.Message):
    __slots__ = ("task_id", "assignment_id")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_ID_FIELD_NUMBER: _ClassVar[int]
    task_id: int
    assignment_id: int
    def __init__(self, task_id: _Optional[int] = ..., assignment_id: _Optional[int] = ...) -> None: ...

class Ended(_message.Message):
    __slots__ = ("task_id", "assignment_id", "status", "outcome", "error", "result")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    task_id: int
    assignment_id: int
    status: int
    outcome: str
    error: str
    result: bytes
    def __init__(self, task_id: _Optional[int] = ..., assignment_id: _Optional[int] = ..., status: _Optional[int] = ..., outcome: _Optional[str] = ..., error: _Optional[str] = ..., result: _Optional[bytes] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("task_id", "assignment_id", "fraction", "message")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_ID_FIELD_NUMBER: _ClassVar[int]
    FRACTION_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    task_id: int
    assignment_id: int
    fraction: float
    message: str
    def __init__(self, task_id: _Optional[int] = ..., assignment_id: _Optional[int] = ..., fraction: _Optional[float] = ..., message: _Optional[str] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("worker_id", "incarnation", "location", "offer", "delivered_up_to", "held", "ended", "leader_epoch", "stream")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    OFFER_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_UP_TO_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    incarnation: str
    location: str
    offer: Offer
    delivered_up_to: int
    held: _containers.RepeatedCompositeFieldContainer[Run]
    ended: _containers.RepeatedCompositeFieldContainer[Ended]
    leader_epoch: int
    stream: int
    def __init__(self, worker_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., location: _Optional[str] = ..., offer: _Optional[_Union[Offer, _Mapping[str, object]]] = ..., delivered_up_to: _Optional[int] = ..., held: _Optional[_Iterable[_Union[Run, _Mapping[str, object]]]] = ..., ended: _Optional[_Iterable[_Union[Ended, _Mapping[str, object]]]] = ..., leader_epoch: _Optional[int] = ..., stream: _Optional[int] = ...) -> None: ...

class WorkerMessage(_message.Message):
    __slots__ = ("hello", "ended", "progress", "offer", "draining", "leaving", "ping")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    OFFER_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    ended: _containers.RepeatedCompositeFieldContainer[Ended]
    progress: _containers.RepeatedCompositeFieldContainer[Progress]
    offer: Offer
    draining: bool
    leaving: bool
    ping: int
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping[str, object]]] = ..., ended: _Optional[_Iterable[_Union[Ended, _Mapping[str, object]]]] = ..., progress: _Optional[_Iterable[_Union[Progress, _Mapping[str, object]]]] = ..., offer: _Optional[_Union[Offer, _Mapping[str, object]]] = ..., draining: bool = ..., leaving: bool = ..., ping: _Optional[int] = ...) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("task_id", "assignment_id", "tenant", "type", "payload", "attempt", "timeout_ms", "deadline_in_ms", "heartbeat_ms", "code", "mode", "slot", "key", "resources")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_IN_MS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    task_id: int
    assignment_id: int
    tenant: str
    type: str
    payload: bytes
    attempt: int
    timeout_ms: int
    deadline_in_ms: int
    heartbeat_ms: int
    code: str
    mode: str
    slot: str
    key: str
    resources: _containers.RepeatedCompositeFieldContainer[Count]
    def __init__(self, task_id: _Optional[int] = ..., assignment_id: _Optional[int] = ..., tenant: _Optional[str] = ..., type: _Optional[str] = ..., payload: _Optional[bytes] = ..., attempt: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., deadline_in_ms: _Optional[int] = ..., heartbeat_ms: _Optional[int] = ..., code: _Optional[str] = ..., mode: _Optional[str] = ..., slot: _Optional[str] = ..., key: _Optional[str] = ..., resources: _Optional[_Iterable[_Union[Count, _Mapping[str, object]]]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("ping_ms", "lease_ms", "broker_id")
    PING_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    ping_ms: int
    lease_ms: int
    broker_id: str
    def __init__(self, ping_ms: _Optional[int] = ..., lease_ms: _Optional[int] = ..., broker_id: _Optional[str] = ...) -> None: ...

class BrokerMessage(_message.Message):
    __slots__ = ("leader_epoch", "welcome", "assignments", "acknowledged", "cancels", "pong", "leader", "refused", "stop", "replaced")
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    CANCELS_FIELD_NUMBER: _ClassVar[int]
    PONG_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    REPLACED_FIELD_NUMBER: _ClassVar[int]
    leader_epoch: int
    welcome: Welcome
    assignments: _containers.RepeatedCompositeFieldContainer[Assignment]
    acknowledged: _containers.RepeatedScalarFieldContainer[int]
    cancels: _containers.RepeatedCompositeFieldContainer[Run]
    pong: int
    leader: str
    refused: str
    stop: bool
    replaced: bool
    def __init__(self, leader_epoch: _Optional[int] = ..., welcome: _Optional[_Union[Welcome, _Mapping[str, object]]] = ..., assignments: _Optional[_Iterable[_Union[Assignment, _Mapping[str, object]]]] = ..., acknowledged: _Optional[_Iterable[int]] = ..., cancels: _Optional[_Iterable[_Union[Run, _Mapping[str, object]]]] = ..., pong: _Optional[int] = ..., leader: _Optional[str] = ..., refused: _Optional[str] = ..., stop: bool = ..., replaced: bool = ...) -> None: ...

class CodeRequest(_message.Message):
    __slots__ = ("code", "offset")
    CODE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    code: str
    offset: int
    def __init__(self, code: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class CodeChunk(_message.Message):
    __slots__ = ("data", "total_bytes", "sha256")
    DATA_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    total_bytes: int
    sha256: str
    def __init__(self, data: _Optional[bytes] = ..., total_bytes: _Optional[int] = ..., sha256: _Optional[str] = ...) -> None: ...
