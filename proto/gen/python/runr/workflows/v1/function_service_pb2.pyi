import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from runr.workflows.v1 import options_pb2 as _options_pb2
from runr.workflows.v1 import workflow_service_pb2 as _workflow_service_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SyncState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SYNC_STATE_UNSPECIFIED: _ClassVar[SyncState]
    SYNC_STATE_SYNCED: _ClassVar[SyncState]
    SYNC_STATE_FALLBACK: _ClassVar[SyncState]
    SYNC_STATE_FAILED: _ClassVar[SyncState]
SYNC_STATE_UNSPECIFIED: SyncState
SYNC_STATE_SYNCED: SyncState
SYNC_STATE_FALLBACK: SyncState
SYNC_STATE_FAILED: SyncState

class SyncStatus(_message.Message):
    __slots__ = ("state", "at", "message", "warnings", "sdk")
    STATE_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    SDK_FIELD_NUMBER: _ClassVar[int]
    state: SyncState
    at: _timestamp_pb2.Timestamp
    message: str
    warnings: _containers.RepeatedScalarFieldContainer[str]
    sdk: bytes
    def __init__(self, state: _Optional[_Union[SyncState, str]] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., message: _Optional[str] = ..., warnings: _Optional[_Iterable[str]] = ..., sdk: _Optional[bytes] = ...) -> None: ...

class App(_message.Message):
    __slots__ = ("project", "endpoint_url", "effective_url", "key_fingerprint", "previous_key_fingerprint", "previous_key_expires_at", "sync", "queue_bridge_url", "workers")
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_URL_FIELD_NUMBER: _ClassVar[int]
    EFFECTIVE_URL_FIELD_NUMBER: _ClassVar[int]
    KEY_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_KEY_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_KEY_EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    SYNC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_BRIDGE_URL_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    project: str
    endpoint_url: str
    effective_url: str
    key_fingerprint: str
    previous_key_fingerprint: str
    previous_key_expires_at: _timestamp_pb2.Timestamp
    sync: SyncStatus
    queue_bridge_url: str
    workers: int
    def __init__(self, project: _Optional[str] = ..., endpoint_url: _Optional[str] = ..., effective_url: _Optional[str] = ..., key_fingerprint: _Optional[str] = ..., previous_key_fingerprint: _Optional[str] = ..., previous_key_expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., sync: _Optional[_Union[SyncStatus, _Mapping]] = ..., queue_bridge_url: _Optional[str] = ..., workers: _Optional[int] = ...) -> None: ...

class SyncWorkflowsRequest(_message.Message):
    __slots__ = ("project",)
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    project: str
    def __init__(self, project: _Optional[str] = ...) -> None: ...

class SyncWorkflowsResponse(_message.Message):
    __slots__ = ("sync", "workflows", "archived")
    SYNC_FIELD_NUMBER: _ClassVar[int]
    WORKFLOWS_FIELD_NUMBER: _ClassVar[int]
    ARCHIVED_FIELD_NUMBER: _ClassVar[int]
    sync: SyncStatus
    workflows: _containers.RepeatedCompositeFieldContainer[_workflow_service_pb2.Workflow]
    archived: _containers.RepeatedCompositeFieldContainer[_workflow_service_pb2.ArchivedWorkflow]
    def __init__(self, sync: _Optional[_Union[SyncStatus, _Mapping]] = ..., workflows: _Optional[_Iterable[_Union[_workflow_service_pb2.Workflow, _Mapping]]] = ..., archived: _Optional[_Iterable[_Union[_workflow_service_pb2.ArchivedWorkflow, _Mapping]]] = ...) -> None: ...

class GetAppRequest(_message.Message):
    __slots__ = ("project",)
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    project: str
    def __init__(self, project: _Optional[str] = ...) -> None: ...

class GetAppResponse(_message.Message):
    __slots__ = ("app",)
    APP_FIELD_NUMBER: _ClassVar[int]
    app: App
    def __init__(self, app: _Optional[_Union[App, _Mapping]] = ...) -> None: ...

class UpdateAppRequest(_message.Message):
    __slots__ = ("project", "endpoint_url")
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_URL_FIELD_NUMBER: _ClassVar[int]
    project: str
    endpoint_url: str
    def __init__(self, project: _Optional[str] = ..., endpoint_url: _Optional[str] = ...) -> None: ...

class UpdateAppResponse(_message.Message):
    __slots__ = ("app", "archived")
    APP_FIELD_NUMBER: _ClassVar[int]
    ARCHIVED_FIELD_NUMBER: _ClassVar[int]
    app: App
    archived: _containers.RepeatedCompositeFieldContainer[_workflow_service_pb2.ArchivedWorkflow]
    def __init__(self, app: _Optional[_Union[App, _Mapping]] = ..., archived: _Optional[_Iterable[_Union[_workflow_service_pb2.ArchivedWorkflow, _Mapping]]] = ...) -> None: ...

class RotateSigningKeyRequest(_message.Message):
    __slots__ = ("project",)
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    project: str
    def __init__(self, project: _Optional[str] = ...) -> None: ...

class RotateSigningKeyResponse(_message.Message):
    __slots__ = ("app",)
    APP_FIELD_NUMBER: _ClassVar[int]
    app: App
    def __init__(self, app: _Optional[_Union[App, _Mapping]] = ...) -> None: ...

class RevealSigningKeyRequest(_message.Message):
    __slots__ = ("project",)
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    project: str
    def __init__(self, project: _Optional[str] = ...) -> None: ...

class RevealSigningKeyResponse(_message.Message):
    __slots__ = ("signing_key", "key_fingerprint", "previous_signing_key")
    SIGNING_KEY_FIELD_NUMBER: _ClassVar[int]
    KEY_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_SIGNING_KEY_FIELD_NUMBER: _ClassVar[int]
    signing_key: str
    key_fingerprint: str
    previous_signing_key: str
    def __init__(self, signing_key: _Optional[str] = ..., key_fingerprint: _Optional[str] = ..., previous_signing_key: _Optional[str] = ...) -> None: ...
