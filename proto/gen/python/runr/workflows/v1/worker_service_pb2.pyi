import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from runr.workflows.v1 import options_pb2 as _options_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DefinitionsOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DEFINITIONS_OUTCOME_UNSPECIFIED: _ClassVar[DefinitionsOutcome]
    DEFINITIONS_OUTCOME_UNCHANGED: _ClassVar[DefinitionsOutcome]
    DEFINITIONS_OUTCOME_REPLACED: _ClassVar[DefinitionsOutcome]
    DEFINITIONS_OUTCOME_OLDER: _ClassVar[DefinitionsOutcome]

class AckOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACK_OUTCOME_UNSPECIFIED: _ClassVar[AckOutcome]
    ACK_OUTCOME_COMMITTED: _ClassVar[AckOutcome]
    ACK_OUTCOME_ALREADY: _ClassVar[AckOutcome]
    ACK_OUTCOME_ABANDONED: _ClassVar[AckOutcome]

class YieldReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    YIELD_REASON_UNSPECIFIED: _ClassVar[YieldReason]
    YIELD_REASON_SLOT: _ClassVar[YieldReason]
    YIELD_REASON_DRAIN: _ClassVar[YieldReason]
    YIELD_REASON_ENDED: _ClassVar[YieldReason]
    YIELD_REASON_LATER: _ClassVar[YieldReason]
DEFINITIONS_OUTCOME_UNSPECIFIED: DefinitionsOutcome
DEFINITIONS_OUTCOME_UNCHANGED: DefinitionsOutcome
DEFINITIONS_OUTCOME_REPLACED: DefinitionsOutcome
DEFINITIONS_OUTCOME_OLDER: DefinitionsOutcome
ACK_OUTCOME_UNSPECIFIED: AckOutcome
ACK_OUTCOME_COMMITTED: AckOutcome
ACK_OUTCOME_ALREADY: AckOutcome
ACK_OUTCOME_ABANDONED: AckOutcome
YIELD_REASON_UNSPECIFIED: YieldReason
YIELD_REASON_SLOT: YieldReason
YIELD_REASON_DRAIN: YieldReason
YIELD_REASON_ENDED: YieldReason
YIELD_REASON_LATER: YieldReason

class ConnectRequest(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[WorkerMessage]
    def __init__(self, messages: _Optional[_Iterable[_Union[WorkerMessage, _Mapping]]] = ...) -> None: ...

class ConnectResponse(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[EngineMessage]
    def __init__(self, messages: _Optional[_Iterable[_Union[EngineMessage, _Mapping]]] = ...) -> None: ...

class WorkerMessage(_message.Message):
    __slots__ = ("hello", "credits", "op", "end", "resume", "drain", "heartbeat", "bring")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    CREDITS_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    BRING_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    credits: Credits
    op: Op
    end: InvocationEnd
    resume: Resume
    drain: Drain
    heartbeat: Heartbeat
    bring: Bring
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., credits: _Optional[_Union[Credits, _Mapping]] = ..., op: _Optional[_Union[Op, _Mapping]] = ..., end: _Optional[_Union[InvocationEnd, _Mapping]] = ..., resume: _Optional[_Union[Resume, _Mapping]] = ..., drain: _Optional[_Union[Drain, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., bring: _Optional[_Union[Bring, _Mapping]] = ...) -> None: ...

class EngineMessage(_message.Message):
    __slots__ = ("hello_ack", "execute", "ack", "delivery", "cancel", "resume_ack", "drain", "heartbeat", "goodbye", "challenge", "recall")
    HELLO_ACK_FIELD_NUMBER: _ClassVar[int]
    EXECUTE_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    RESUME_ACK_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    CHALLENGE_FIELD_NUMBER: _ClassVar[int]
    RECALL_FIELD_NUMBER: _ClassVar[int]
    hello_ack: HelloAck
    execute: Execute
    ack: Ack
    delivery: Delivery
    cancel: Cancel
    resume_ack: ResumeAck
    drain: Drain
    heartbeat: Heartbeat
    goodbye: Goodbye
    challenge: Challenge
    recall: Recall
    def __init__(self, hello_ack: _Optional[_Union[HelloAck, _Mapping]] = ..., execute: _Optional[_Union[Execute, _Mapping]] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ..., delivery: _Optional[_Union[Delivery, _Mapping]] = ..., cancel: _Optional[_Union[Cancel, _Mapping]] = ..., resume_ack: _Optional[_Union[ResumeAck, _Mapping]] = ..., drain: _Optional[_Union[Drain, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ..., challenge: _Optional[_Union[Challenge, _Mapping]] = ..., recall: _Optional[_Union[Recall, _Mapping]] = ...) -> None: ...

class InvocationKey(_message.Message):
    __slots__ = ("run_id", "epoch", "invocation")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    INVOCATION_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    epoch: int
    invocation: int
    def __init__(self, run_id: _Optional[str] = ..., epoch: _Optional[int] = ..., invocation: _Optional[int] = ...) -> None: ...

class Challenge(_message.Message):
    __slots__ = ("nonce",)
    NONCE_FIELD_NUMBER: _ClassVar[int]
    nonce: str
    def __init__(self, nonce: _Optional[str] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol", "features", "required_features", "session", "project", "definitions", "definitions_hash", "code_version", "node", "credits", "tenant", "nonce", "signature", "sdk", "resuming")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_FEATURES_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    DEFINITIONS_FIELD_NUMBER: _ClassVar[int]
    DEFINITIONS_HASH_FIELD_NUMBER: _ClassVar[int]
    CODE_VERSION_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    CREDITS_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    SDK_FIELD_NUMBER: _ClassVar[int]
    RESUMING_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    features: _containers.RepeatedScalarFieldContainer[str]
    required_features: _containers.RepeatedScalarFieldContainer[str]
    session: str
    project: str
    definitions: bytes
    definitions_hash: str
    code_version: int
    node: str
    credits: int
    tenant: str
    nonce: str
    signature: str
    sdk: bytes
    resuming: bool
    def __init__(self, protocol: _Optional[int] = ..., features: _Optional[_Iterable[str]] = ..., required_features: _Optional[_Iterable[str]] = ..., session: _Optional[str] = ..., project: _Optional[str] = ..., definitions: _Optional[bytes] = ..., definitions_hash: _Optional[str] = ..., code_version: _Optional[int] = ..., node: _Optional[str] = ..., credits: _Optional[int] = ..., tenant: _Optional[str] = ..., nonce: _Optional[str] = ..., signature: _Optional[str] = ..., sdk: _Optional[bytes] = ..., resuming: _Optional[bool] = ...) -> None: ...

class HelloAck(_message.Message):
    __slots__ = ("protocol", "features", "engine_version", "heartbeat_interval", "dead_after", "max_unacked_bytes", "definitions", "warnings", "signature")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    ENGINE_VERSION_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    DEAD_AFTER_FIELD_NUMBER: _ClassVar[int]
    MAX_UNACKED_BYTES_FIELD_NUMBER: _ClassVar[int]
    DEFINITIONS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    features: _containers.RepeatedScalarFieldContainer[str]
    engine_version: str
    heartbeat_interval: _duration_pb2.Duration
    dead_after: _duration_pb2.Duration
    max_unacked_bytes: int
    definitions: DefinitionsOutcome
    warnings: _containers.RepeatedScalarFieldContainer[str]
    signature: str
    def __init__(self, protocol: _Optional[int] = ..., features: _Optional[_Iterable[str]] = ..., engine_version: _Optional[str] = ..., heartbeat_interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., dead_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_unacked_bytes: _Optional[int] = ..., definitions: _Optional[_Union[DefinitionsOutcome, str]] = ..., warnings: _Optional[_Iterable[str]] = ..., signature: _Optional[str] = ...) -> None: ...

class Credits(_message.Message):
    __slots__ = ("add",)
    ADD_FIELD_NUMBER: _ClassVar[int]
    add: int
    def __init__(self, add: _Optional[int] = ...) -> None: ...

class Execute(_message.Message):
    __slots__ = ("key", "workflow", "request_chunk", "request_bytes", "last", "traceparent", "open_steps", "tracestate")
    KEY_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_FIELD_NUMBER: _ClassVar[int]
    REQUEST_CHUNK_FIELD_NUMBER: _ClassVar[int]
    REQUEST_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    OPEN_STEPS_FIELD_NUMBER: _ClassVar[int]
    TRACESTATE_FIELD_NUMBER: _ClassVar[int]
    key: InvocationKey
    workflow: str
    request_chunk: bytes
    request_bytes: int
    last: bool
    traceparent: str
    open_steps: _containers.RepeatedScalarFieldContainer[str]
    tracestate: str
    def __init__(self, key: _Optional[_Union[InvocationKey, _Mapping]] = ..., workflow: _Optional[str] = ..., request_chunk: _Optional[bytes] = ..., request_bytes: _Optional[int] = ..., last: _Optional[bool] = ..., traceparent: _Optional[str] = ..., open_steps: _Optional[_Iterable[str]] = ..., tracestate: _Optional[str] = ...) -> None: ...

class Op(_message.Message):
    __slots__ = ("key", "number", "op", "last")
    KEY_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    key: InvocationKey
    number: int
    op: bytes
    last: bool
    def __init__(self, key: _Optional[_Union[InvocationKey, _Mapping]] = ..., number: _Optional[int] = ..., op: _Optional[bytes] = ..., last: _Optional[bool] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("key", "number", "outcome", "yield_reason", "step")
    KEY_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    YIELD_REASON_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    key: InvocationKey
    number: int
    outcome: AckOutcome
    yield_reason: YieldReason
    step: bytes
    def __init__(self, key: _Optional[_Union[InvocationKey, _Mapping]] = ..., number: _Optional[int] = ..., outcome: _Optional[_Union[AckOutcome, str]] = ..., yield_reason: _Optional[_Union[YieldReason, str]] = ..., step: _Optional[bytes] = ...) -> None: ...

class Delivery(_message.Message):
    __slots__ = ("key", "step_id", "step")
    KEY_FIELD_NUMBER: _ClassVar[int]
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    key: InvocationKey
    step_id: str
    step: bytes
    def __init__(self, key: _Optional[_Union[InvocationKey, _Mapping]] = ..., step_id: _Optional[str] = ..., step: _Optional[bytes] = ...) -> None: ...

class InvocationEnd(_message.Message):
    __slots__ = ("key", "again")
    KEY_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    key: InvocationKey
    again: bool
    def __init__(self, key: _Optional[_Union[InvocationKey, _Mapping]] = ..., again: _Optional[bool] = ...) -> None: ...

class Cancel(_message.Message):
    __slots__ = ("key", "reason")
    KEY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    key: InvocationKey
    reason: str
    def __init__(self, key: _Optional[_Union[InvocationKey, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class Resume(_message.Message):
    __slots__ = ("items",)
    class Item(_message.Message):
        __slots__ = ("key", "unacked")
        KEY_FIELD_NUMBER: _ClassVar[int]
        UNACKED_FIELD_NUMBER: _ClassVar[int]
        key: InvocationKey
        unacked: _containers.RepeatedCompositeFieldContainer[Op]
        def __init__(self, key: _Optional[_Union[InvocationKey, _Mapping]] = ..., unacked: _Optional[_Iterable[_Union[Op, _Mapping]]] = ...) -> None: ...
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Resume.Item]
    def __init__(self, items: _Optional[_Iterable[_Union[Resume.Item, _Mapping]]] = ...) -> None: ...

class ResumeAck(_message.Message):
    __slots__ = ("items",)
    class Item(_message.Message):
        __slots__ = ("key", "resumed_as")
        KEY_FIELD_NUMBER: _ClassVar[int]
        RESUMED_AS_FIELD_NUMBER: _ClassVar[int]
        key: InvocationKey
        resumed_as: InvocationKey
        def __init__(self, key: _Optional[_Union[InvocationKey, _Mapping]] = ..., resumed_as: _Optional[_Union[InvocationKey, _Mapping]] = ...) -> None: ...
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[ResumeAck.Item]
    def __init__(self, items: _Optional[_Iterable[_Union[ResumeAck.Item, _Mapping]]] = ...) -> None: ...

class Recall(_message.Message):
    __slots__ = ("keys",)
    KEYS_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedCompositeFieldContainer[InvocationKey]
    def __init__(self, keys: _Optional[_Iterable[_Union[InvocationKey, _Mapping]]] = ...) -> None: ...

class Bring(_message.Message):
    __slots__ = ("items", "unknown")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Resume.Item]
    unknown: _containers.RepeatedCompositeFieldContainer[InvocationKey]
    def __init__(self, items: _Optional[_Iterable[_Union[Resume.Item, _Mapping]]] = ..., unknown: _Optional[_Iterable[_Union[InvocationKey, _Mapping]]] = ...) -> None: ...

class Drain(_message.Message):
    __slots__ = ("grace", "reason")
    GRACE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    grace: _duration_pb2.Duration
    reason: str
    def __init__(self, grace: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ("reason", "message")
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    reason: str
    message: str
    def __init__(self, reason: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...
