import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RunState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RUN_STATE_UNSPECIFIED: _ClassVar[RunState]
    RUN_STATE_QUEUED: _ClassVar[RunState]
    RUN_STATE_RUNNING: _ClassVar[RunState]
    RUN_STATE_SLEEPING: _ClassVar[RunState]
    RUN_STATE_WAITING: _ClassVar[RunState]
    RUN_STATE_COMPLETED: _ClassVar[RunState]
    RUN_STATE_FAILED: _ClassVar[RunState]
    RUN_STATE_CANCELLED: _ClassVar[RunState]
    RUN_STATE_TIMED_OUT: _ClassVar[RunState]

class StepState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STEP_STATE_UNSPECIFIED: _ClassVar[StepState]
    STEP_STATE_COMPLETED: _ClassVar[StepState]
    STEP_STATE_FAILED: _ClassVar[StepState]
    STEP_STATE_RETRYING: _ClassVar[StepState]
    STEP_STATE_SLEEPING: _ClassVar[StepState]
    STEP_STATE_WAITING: _ClassVar[StepState]
    STEP_STATE_CANCELLED: _ClassVar[StepState]

class StepKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STEP_KIND_UNSPECIFIED: _ClassVar[StepKind]
    STEP_KIND_RUN: _ClassVar[StepKind]
    STEP_KIND_SLEEP: _ClassVar[StepKind]
    STEP_KIND_WAIT_FOR_EVENT: _ClassVar[StepKind]
    STEP_KIND_INVOKE: _ClassVar[StepKind]
    STEP_KIND_SEND_EVENT: _ClassVar[StepKind]

class RunSource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RUN_SOURCE_UNSPECIFIED: _ClassVar[RunSource]
    RUN_SOURCE_API: _ClassVar[RunSource]
    RUN_SOURCE_EVENT: _ClassVar[RunSource]
    RUN_SOURCE_CRON: _ClassVar[RunSource]
    RUN_SOURCE_QUEUE: _ClassVar[RunSource]
    RUN_SOURCE_INVOKE: _ClassVar[RunSource]
    RUN_SOURCE_REPLAY: _ClassVar[RunSource]

class EventSource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EVENT_SOURCE_UNSPECIFIED: _ClassVar[EventSource]
    EVENT_SOURCE_API: _ClassVar[EventSource]
    EVENT_SOURCE_WORKFLOW: _ClassVar[EventSource]
    EVENT_SOURCE_QUEUE: _ClassVar[EventSource]
    EVENT_SOURCE_PLATFORM: _ClassVar[EventSource]

class RunWaitKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RUN_WAIT_KIND_UNSPECIFIED: _ClassVar[RunWaitKind]
    RUN_WAIT_KIND_EXECUTOR: _ClassVar[RunWaitKind]
    RUN_WAIT_KIND_WORKER: _ClassVar[RunWaitKind]
    RUN_WAIT_KIND_SLOT: _ClassVar[RunWaitKind]
    RUN_WAIT_KIND_RETRY: _ClassVar[RunWaitKind]
    RUN_WAIT_KIND_START: _ClassVar[RunWaitKind]
    RUN_WAIT_KIND_ANSWER: _ClassVar[RunWaitKind]
RUN_STATE_UNSPECIFIED: RunState
RUN_STATE_QUEUED: RunState
RUN_STATE_RUNNING: RunState
RUN_STATE_SLEEPING: RunState
RUN_STATE_WAITING: RunState
RUN_STATE_COMPLETED: RunState
RUN_STATE_FAILED: RunState
RUN_STATE_CANCELLED: RunState
RUN_STATE_TIMED_OUT: RunState
STEP_STATE_UNSPECIFIED: StepState
STEP_STATE_COMPLETED: StepState
STEP_STATE_FAILED: StepState
STEP_STATE_RETRYING: StepState
STEP_STATE_SLEEPING: StepState
STEP_STATE_WAITING: StepState
STEP_STATE_CANCELLED: StepState
STEP_KIND_UNSPECIFIED: StepKind
STEP_KIND_RUN: StepKind
STEP_KIND_SLEEP: StepKind
STEP_KIND_WAIT_FOR_EVENT: StepKind
STEP_KIND_INVOKE: StepKind
STEP_KIND_SEND_EVENT: StepKind
RUN_SOURCE_UNSPECIFIED: RunSource
RUN_SOURCE_API: RunSource
RUN_SOURCE_EVENT: RunSource
RUN_SOURCE_CRON: RunSource
RUN_SOURCE_QUEUE: RunSource
RUN_SOURCE_INVOKE: RunSource
RUN_SOURCE_REPLAY: RunSource
EVENT_SOURCE_UNSPECIFIED: EventSource
EVENT_SOURCE_API: EventSource
EVENT_SOURCE_WORKFLOW: EventSource
EVENT_SOURCE_QUEUE: EventSource
EVENT_SOURCE_PLATFORM: EventSource
RUN_WAIT_KIND_UNSPECIFIED: RunWaitKind
RUN_WAIT_KIND_EXECUTOR: RunWaitKind
RUN_WAIT_KIND_WORKER: RunWaitKind
RUN_WAIT_KIND_SLOT: RunWaitKind
RUN_WAIT_KIND_RETRY: RunWaitKind
RUN_WAIT_KIND_START: RunWaitKind
RUN_WAIT_KIND_ANSWER: RunWaitKind

class Failure(_message.Message):
    __slots__ = ("name", "message", "stack")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    STACK_FIELD_NUMBER: _ClassVar[int]
    name: str
    message: str
    stack: str
    def __init__(self, name: _Optional[str] = ..., message: _Optional[str] = ..., stack: _Optional[str] = ...) -> None: ...

class Attempt(_message.Message):
    __slots__ = ("attempt", "error", "started_at", "ended_at", "warning", "step_id")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    WARNING_FIELD_NUMBER: _ClassVar[int]
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    error: Failure
    started_at: _timestamp_pb2.Timestamp
    ended_at: _timestamp_pb2.Timestamp
    warning: str
    step_id: str
    def __init__(self, attempt: _Optional[int] = ..., error: _Optional[_Union[Failure, _Mapping]] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ended_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., warning: _Optional[str] = ..., step_id: _Optional[str] = ...) -> None: ...

class StepWait(_message.Message):
    __slots__ = ("event", "condition", "timeout_at", "warnings")
    EVENT_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_AT_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    event: str
    condition: str
    timeout_at: _timestamp_pb2.Timestamp
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, event: _Optional[str] = ..., condition: _Optional[str] = ..., timeout_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class Step(_message.Message):
    __slots__ = ("id", "name", "kind", "state", "output", "error", "input", "attempts", "started_at", "ended_at", "wake_at", "wait", "child_run_id", "timed_out")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    WAKE_AT_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    CHILD_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    TIMED_OUT_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    kind: StepKind
    state: StepState
    output: bytes
    error: Failure
    input: bytes
    attempts: _containers.RepeatedCompositeFieldContainer[Attempt]
    started_at: _timestamp_pb2.Timestamp
    ended_at: _timestamp_pb2.Timestamp
    wake_at: _timestamp_pb2.Timestamp
    wait: StepWait
    child_run_id: str
    timed_out: bool
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., kind: _Optional[_Union[StepKind, str]] = ..., state: _Optional[_Union[StepState, str]] = ..., output: _Optional[bytes] = ..., error: _Optional[_Union[Failure, _Mapping]] = ..., input: _Optional[bytes] = ..., attempts: _Optional[_Iterable[_Union[Attempt, _Mapping]]] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ended_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., wake_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., wait: _Optional[_Union[StepWait, _Mapping]] = ..., child_run_id: _Optional[str] = ..., timed_out: _Optional[bool] = ...) -> None: ...

class TriggerEvent(_message.Message):
    __slots__ = ("id", "name", "data", "ts")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    TS_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    data: bytes
    ts: int
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., data: _Optional[bytes] = ..., ts: _Optional[int] = ...) -> None: ...

class RunWait(_message.Message):
    __slots__ = ("kind", "message")
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    kind: RunWaitKind
    message: str
    def __init__(self, kind: _Optional[_Union[RunWaitKind, str]] = ..., message: _Optional[str] = ...) -> None: ...

class Run(_message.Message):
    __slots__ = ("id", "workflow", "project", "state", "source", "test", "attempt", "tags", "idempotency_key", "parent_run_id", "replay_of_run_id", "created_at", "started_at", "ended_at", "due_at", "timeout_at", "event", "output", "error", "attempts", "trace_id", "waiting_for")
    ID_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TEST_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    PARENT_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    REPLAY_OF_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    DUE_AT_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_AT_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    id: str
    workflow: str
    project: str
    state: RunState
    source: RunSource
    test: bool
    attempt: int
    tags: _containers.RepeatedScalarFieldContainer[str]
    idempotency_key: str
    parent_run_id: str
    replay_of_run_id: str
    created_at: _timestamp_pb2.Timestamp
    started_at: _timestamp_pb2.Timestamp
    ended_at: _timestamp_pb2.Timestamp
    due_at: _timestamp_pb2.Timestamp
    timeout_at: _timestamp_pb2.Timestamp
    event: TriggerEvent
    output: bytes
    error: Failure
    attempts: _containers.RepeatedCompositeFieldContainer[Attempt]
    trace_id: str
    waiting_for: RunWait
    def __init__(self, id: _Optional[str] = ..., workflow: _Optional[str] = ..., project: _Optional[str] = ..., state: _Optional[_Union[RunState, str]] = ..., source: _Optional[_Union[RunSource, str]] = ..., test: _Optional[bool] = ..., attempt: _Optional[int] = ..., tags: _Optional[_Iterable[str]] = ..., idempotency_key: _Optional[str] = ..., parent_run_id: _Optional[str] = ..., replay_of_run_id: _Optional[str] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ended_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., due_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., timeout_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., event: _Optional[_Union[TriggerEvent, _Mapping]] = ..., output: _Optional[bytes] = ..., error: _Optional[_Union[Failure, _Mapping]] = ..., attempts: _Optional[_Iterable[_Union[Attempt, _Mapping]]] = ..., trace_id: _Optional[str] = ..., waiting_for: _Optional[_Union[RunWait, _Mapping]] = ...) -> None: ...

class ChildRun(_message.Message):
    __slots__ = ("id", "workflow", "step_id", "state")
    ID_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_FIELD_NUMBER: _ClassVar[int]
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    id: str
    workflow: str
    step_id: str
    state: RunState
    def __init__(self, id: _Optional[str] = ..., workflow: _Optional[str] = ..., step_id: _Optional[str] = ..., state: _Optional[_Union[RunState, str]] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("id", "name", "data", "ts", "event_id", "source", "project", "run_id", "test", "received_at", "effects", "trace_id")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    TS_FIELD_NUMBER: _ClassVar[int]
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    TEST_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_AT_FIELD_NUMBER: _ClassVar[int]
    EFFECTS_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    data: bytes
    ts: int
    event_id: str
    source: EventSource
    project: str
    run_id: str
    test: bool
    received_at: _timestamp_pb2.Timestamp
    effects: EventEffects
    trace_id: str
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., data: _Optional[bytes] = ..., ts: _Optional[int] = ..., event_id: _Optional[str] = ..., source: _Optional[_Union[EventSource, str]] = ..., project: _Optional[str] = ..., run_id: _Optional[str] = ..., test: _Optional[bool] = ..., received_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., effects: _Optional[_Union[EventEffects, _Mapping]] = ..., trace_id: _Optional[str] = ...) -> None: ...

class EventEffects(_message.Message):
    __slots__ = ("started_run_ids", "resumed_run_ids", "cancelled_run_ids", "started", "resumed", "cancelled", "skipped")
    STARTED_RUN_IDS_FIELD_NUMBER: _ClassVar[int]
    RESUMED_RUN_IDS_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_RUN_IDS_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    started_run_ids: _containers.RepeatedScalarFieldContainer[str]
    resumed_run_ids: _containers.RepeatedScalarFieldContainer[str]
    cancelled_run_ids: _containers.RepeatedScalarFieldContainer[str]
    started: int
    resumed: int
    cancelled: int
    skipped: _containers.RepeatedCompositeFieldContainer[SkippedStart]
    def __init__(self, started_run_ids: _Optional[_Iterable[str]] = ..., resumed_run_ids: _Optional[_Iterable[str]] = ..., cancelled_run_ids: _Optional[_Iterable[str]] = ..., started: _Optional[int] = ..., resumed: _Optional[int] = ..., cancelled: _Optional[int] = ..., skipped: _Optional[_Iterable[_Union[SkippedStart, _Mapping]]] = ...) -> None: ...

class SkippedStart(_message.Message):
    __slots__ = ("workflow", "project", "reason", "run_id")
    WORKFLOW_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    workflow: str
    project: str
    reason: str
    run_id: str
    def __init__(self, workflow: _Optional[str] = ..., project: _Optional[str] = ..., reason: _Optional[str] = ..., run_id: _Optional[str] = ...) -> None: ...

class Credentials(_message.Message):
    __slots__ = ("token", "tenant", "traceparent")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    token: str
    tenant: str
    traceparent: str
    def __init__(self, token: _Optional[str] = ..., tenant: _Optional[str] = ..., traceparent: _Optional[str] = ...) -> None: ...
