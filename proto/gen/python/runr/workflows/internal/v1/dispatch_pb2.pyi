from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReadyHint(_message.Message):
    __slots__ = ("run_ids", "traceparent")
    RUN_IDS_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    run_ids: _containers.RepeatedScalarFieldContainer[bytes]
    traceparent: str
    def __init__(self, run_ids: _Optional[_Iterable[bytes]] = ..., traceparent: _Optional[str] = ...) -> None: ...

class TimerHint(_message.Message):
    __slots__ = ("timers",)
    class Timer(_message.Message):
        __slots__ = ("run_id", "due_at_ms")
        RUN_ID_FIELD_NUMBER: _ClassVar[int]
        DUE_AT_MS_FIELD_NUMBER: _ClassVar[int]
        run_id: bytes
        due_at_ms: int
        def __init__(self, run_id: _Optional[bytes] = ..., due_at_ms: _Optional[int] = ...) -> None: ...
    TIMERS_FIELD_NUMBER: _ClassVar[int]
    timers: _containers.RepeatedCompositeFieldContainer[TimerHint.Timer]
    def __init__(self, timers: _Optional[_Iterable[_Union[TimerHint.Timer, _Mapping]]] = ...) -> None: ...

class CancelNotice(_message.Message):
    __slots__ = ("run_ids",)
    RUN_IDS_FIELD_NUMBER: _ClassVar[int]
    run_ids: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, run_ids: _Optional[_Iterable[bytes]] = ...) -> None: ...

class MailNotice(_message.Message):
    __slots__ = ("run_ids",)
    RUN_IDS_FIELD_NUMBER: _ClassVar[int]
    run_ids: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, run_ids: _Optional[_Iterable[bytes]] = ...) -> None: ...

class PoolHint(_message.Message):
    __slots__ = ("workflows",)
    WORKFLOWS_FIELD_NUMBER: _ClassVar[int]
    workflows: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, workflows: _Optional[_Iterable[int]] = ...) -> None: ...

class DefsChanged(_message.Message):
    __slots__ = ("tenant",)
    TENANT_FIELD_NUMBER: _ClassVar[int]
    tenant: int
    def __init__(self, tenant: _Optional[int] = ...) -> None: ...
