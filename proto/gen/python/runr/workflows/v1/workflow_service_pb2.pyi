import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from runr.workflows.v1 import options_pb2 as _options_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DefinitionSource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DEFINITION_SOURCE_UNSPECIFIED: _ClassVar[DefinitionSource]
    DEFINITION_SOURCE_API: _ClassVar[DefinitionSource]
    DEFINITION_SOURCE_SYNC: _ClassVar[DefinitionSource]
    DEFINITION_SOURCE_FILE: _ClassVar[DefinitionSource]
    DEFINITION_SOURCE_WORKER: _ClassVar[DefinitionSource]
DEFINITION_SOURCE_UNSPECIFIED: DefinitionSource
DEFINITION_SOURCE_API: DefinitionSource
DEFINITION_SOURCE_SYNC: DefinitionSource
DEFINITION_SOURCE_FILE: DefinitionSource
DEFINITION_SOURCE_WORKER: DefinitionSource

class Workflow(_message.Message):
    __slots__ = ("name", "project", "definition", "is_active", "archived_at", "source", "version", "created_at", "updated_at")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    IS_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    ARCHIVED_AT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    name: str
    project: str
    definition: bytes
    is_active: bool
    archived_at: _timestamp_pb2.Timestamp
    source: DefinitionSource
    version: str
    created_at: _timestamp_pb2.Timestamp
    updated_at: _timestamp_pb2.Timestamp
    def __init__(self, name: _Optional[str] = ..., project: _Optional[str] = ..., definition: _Optional[bytes] = ..., is_active: _Optional[bool] = ..., archived_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., source: _Optional[_Union[DefinitionSource, str]] = ..., version: _Optional[str] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ArchivedWorkflow(_message.Message):
    __slots__ = ("name", "active_runs", "at_least")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_RUNS_FIELD_NUMBER: _ClassVar[int]
    AT_LEAST_FIELD_NUMBER: _ClassVar[int]
    name: str
    active_runs: int
    at_least: bool
    def __init__(self, name: _Optional[str] = ..., active_runs: _Optional[int] = ..., at_least: _Optional[bool] = ...) -> None: ...

class DeclareWorkflowsRequest(_message.Message):
    __slots__ = ("project", "definitions")
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    DEFINITIONS_FIELD_NUMBER: _ClassVar[int]
    project: str
    definitions: bytes
    def __init__(self, project: _Optional[str] = ..., definitions: _Optional[bytes] = ...) -> None: ...

class DeclareWorkflowsResponse(_message.Message):
    __slots__ = ("workflows", "archived")
    WORKFLOWS_FIELD_NUMBER: _ClassVar[int]
    ARCHIVED_FIELD_NUMBER: _ClassVar[int]
    workflows: _containers.RepeatedCompositeFieldContainer[Workflow]
    archived: _containers.RepeatedCompositeFieldContainer[ArchivedWorkflow]
    def __init__(self, workflows: _Optional[_Iterable[_Union[Workflow, _Mapping]]] = ..., archived: _Optional[_Iterable[_Union[ArchivedWorkflow, _Mapping]]] = ...) -> None: ...

class ListWorkflowsRequest(_message.Message):
    __slots__ = ("project", "page_size", "page_token", "include_archived")
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_ARCHIVED_FIELD_NUMBER: _ClassVar[int]
    project: str
    page_size: int
    page_token: str
    include_archived: bool
    def __init__(self, project: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., include_archived: _Optional[bool] = ...) -> None: ...

class ListWorkflowsResponse(_message.Message):
    __slots__ = ("workflows", "next_page_token")
    WORKFLOWS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    workflows: _containers.RepeatedCompositeFieldContainer[Workflow]
    next_page_token: str
    def __init__(self, workflows: _Optional[_Iterable[_Union[Workflow, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetWorkflowRequest(_message.Message):
    __slots__ = ("project", "workflow")
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_FIELD_NUMBER: _ClassVar[int]
    project: str
    workflow: str
    def __init__(self, project: _Optional[str] = ..., workflow: _Optional[str] = ...) -> None: ...

class GetWorkflowResponse(_message.Message):
    __slots__ = ("workflow",)
    WORKFLOW_FIELD_NUMBER: _ClassVar[int]
    workflow: Workflow
    def __init__(self, workflow: _Optional[_Union[Workflow, _Mapping]] = ...) -> None: ...

class UpdateWorkflowRequest(_message.Message):
    __slots__ = ("project", "workflow", "is_active")
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_FIELD_NUMBER: _ClassVar[int]
    IS_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    project: str
    workflow: str
    is_active: bool
    def __init__(self, project: _Optional[str] = ..., workflow: _Optional[str] = ..., is_active: _Optional[bool] = ...) -> None: ...

class UpdateWorkflowResponse(_message.Message):
    __slots__ = ("workflow",)
    WORKFLOW_FIELD_NUMBER: _ClassVar[int]
    workflow: Workflow
    def __init__(self, workflow: _Optional[_Union[Workflow, _Mapping]] = ...) -> None: ...

class StoreDefinitionsFileRequest(_message.Message):
    __slots__ = ("project", "definitions")
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    DEFINITIONS_FIELD_NUMBER: _ClassVar[int]
    project: str
    definitions: bytes
    def __init__(self, project: _Optional[str] = ..., definitions: _Optional[bytes] = ...) -> None: ...

class StoreDefinitionsFileResponse(_message.Message):
    __slots__ = ("workflows", "warnings")
    WORKFLOWS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    workflows: int
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, workflows: _Optional[int] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class GetUsageRequest(_message.Message):
    __slots__ = ("project", "from_day", "to_day")
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    FROM_DAY_FIELD_NUMBER: _ClassVar[int]
    TO_DAY_FIELD_NUMBER: _ClassVar[int]
    project: str
    from_day: str
    to_day: str
    def __init__(self, project: _Optional[str] = ..., from_day: _Optional[str] = ..., to_day: _Optional[str] = ...) -> None: ...

class UsageCount(_message.Message):
    __slots__ = ("runs", "steps")
    RUNS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    runs: int
    steps: int
    def __init__(self, runs: _Optional[int] = ..., steps: _Optional[int] = ...) -> None: ...

class DailyUsage(_message.Message):
    __slots__ = ("day", "count")
    DAY_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    day: str
    count: UsageCount
    def __init__(self, day: _Optional[str] = ..., count: _Optional[_Union[UsageCount, _Mapping]] = ...) -> None: ...

class WorkflowUsage(_message.Message):
    __slots__ = ("workflow", "project", "count")
    WORKFLOW_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    workflow: str
    project: str
    count: UsageCount
    def __init__(self, workflow: _Optional[str] = ..., project: _Optional[str] = ..., count: _Optional[_Union[UsageCount, _Mapping]] = ...) -> None: ...

class GetUsageResponse(_message.Message):
    __slots__ = ("total", "daily", "workflows")
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    DAILY_FIELD_NUMBER: _ClassVar[int]
    WORKFLOWS_FIELD_NUMBER: _ClassVar[int]
    total: UsageCount
    daily: _containers.RepeatedCompositeFieldContainer[DailyUsage]
    workflows: _containers.RepeatedCompositeFieldContainer[WorkflowUsage]
    def __init__(self, total: _Optional[_Union[UsageCount, _Mapping]] = ..., daily: _Optional[_Iterable[_Union[DailyUsage, _Mapping]]] = ..., workflows: _Optional[_Iterable[_Union[WorkflowUsage, _Mapping]]] = ...) -> None: ...
