import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from runr.workflows.v1 import options_pb2 as _options_pb2
from runr.workflows.v1 import resources_pb2 as _resources_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BulkAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BULK_ACTION_UNSPECIFIED: _ClassVar[BulkAction]
    BULK_ACTION_CANCEL: _ClassVar[BulkAction]
    BULK_ACTION_RETRY: _ClassVar[BulkAction]
    BULK_ACTION_REPLAY: _ClassVar[BulkAction]
    BULK_ACTION_BACKFILL: _ClassVar[BulkAction]

class BulkJobState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BULK_JOB_STATE_UNSPECIFIED: _ClassVar[BulkJobState]
    BULK_JOB_STATE_QUEUED: _ClassVar[BulkJobState]
    BULK_JOB_STATE_RUNNING: _ClassVar[BulkJobState]
    BULK_JOB_STATE_COMPLETED: _ClassVar[BulkJobState]
    BULK_JOB_STATE_FAILED: _ClassVar[BulkJobState]
    BULK_JOB_STATE_STOPPED: _ClassVar[BulkJobState]
BULK_ACTION_UNSPECIFIED: BulkAction
BULK_ACTION_CANCEL: BulkAction
BULK_ACTION_RETRY: BulkAction
BULK_ACTION_REPLAY: BulkAction
BULK_ACTION_BACKFILL: BulkAction
BULK_JOB_STATE_UNSPECIFIED: BulkJobState
BULK_JOB_STATE_QUEUED: BulkJobState
BULK_JOB_STATE_RUNNING: BulkJobState
BULK_JOB_STATE_COMPLETED: BulkJobState
BULK_JOB_STATE_FAILED: BulkJobState
BULK_JOB_STATE_STOPPED: BulkJobState

class ScheduleKey(_message.Message):
    __slots__ = ("project", "workflow", "trigger")
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_FIELD_NUMBER: _ClassVar[int]
    TRIGGER_FIELD_NUMBER: _ClassVar[int]
    project: str
    workflow: str
    trigger: int
    def __init__(self, project: _Optional[str] = ..., workflow: _Optional[str] = ..., trigger: _Optional[int] = ...) -> None: ...

class Schedule(_message.Message):
    __slots__ = ("key", "cron", "timezone", "catch_up", "is_active", "next_at", "last_at", "last_run_id")
    KEY_FIELD_NUMBER: _ClassVar[int]
    CRON_FIELD_NUMBER: _ClassVar[int]
    TIMEZONE_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_FIELD_NUMBER: _ClassVar[int]
    IS_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    NEXT_AT_FIELD_NUMBER: _ClassVar[int]
    LAST_AT_FIELD_NUMBER: _ClassVar[int]
    LAST_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    key: ScheduleKey
    cron: str
    timezone: str
    catch_up: str
    is_active: bool
    next_at: _containers.RepeatedCompositeFieldContainer[_timestamp_pb2.Timestamp]
    last_at: _timestamp_pb2.Timestamp
    last_run_id: str
    def __init__(self, key: _Optional[_Union[ScheduleKey, _Mapping]] = ..., cron: _Optional[str] = ..., timezone: _Optional[str] = ..., catch_up: _Optional[str] = ..., is_active: _Optional[bool] = ..., next_at: _Optional[_Iterable[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]]] = ..., last_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_run_id: _Optional[str] = ...) -> None: ...

class ListSchedulesRequest(_message.Message):
    __slots__ = ("project", "page_size", "page_token")
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    project: str
    page_size: int
    page_token: str
    def __init__(self, project: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListSchedulesResponse(_message.Message):
    __slots__ = ("schedules", "next_page_token")
    SCHEDULES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    schedules: _containers.RepeatedCompositeFieldContainer[Schedule]
    next_page_token: str
    def __init__(self, schedules: _Optional[_Iterable[_Union[Schedule, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class UpdateScheduleRequest(_message.Message):
    __slots__ = ("key", "is_active")
    KEY_FIELD_NUMBER: _ClassVar[int]
    IS_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    key: ScheduleKey
    is_active: bool
    def __init__(self, key: _Optional[_Union[ScheduleKey, _Mapping]] = ..., is_active: _Optional[bool] = ...) -> None: ...

class UpdateScheduleResponse(_message.Message):
    __slots__ = ("schedule",)
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    schedule: Schedule
    def __init__(self, schedule: _Optional[_Union[Schedule, _Mapping]] = ...) -> None: ...

class TriggerScheduleRequest(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: ScheduleKey
    def __init__(self, key: _Optional[_Union[ScheduleKey, _Mapping]] = ...) -> None: ...

class TriggerScheduleResponse(_message.Message):
    __slots__ = ("run", "existing")
    RUN_FIELD_NUMBER: _ClassVar[int]
    EXISTING_FIELD_NUMBER: _ClassVar[int]
    run: _resources_pb2.Run
    existing: bool
    def __init__(self, run: _Optional[_Union[_resources_pb2.Run, _Mapping]] = ..., existing: _Optional[bool] = ...) -> None: ...

class BackfillScheduleRequest(_message.Message):
    __slots__ = ("key", "since", "until", "dry_run")
    KEY_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    key: ScheduleKey
    since: _timestamp_pb2.Timestamp
    until: _timestamp_pb2.Timestamp
    dry_run: bool
    def __init__(self, key: _Optional[_Union[ScheduleKey, _Mapping]] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class BackfillScheduleResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: BulkJob
    def __init__(self, job: _Optional[_Union[BulkJob, _Mapping]] = ...) -> None: ...

class RunFilter(_message.Message):
    __slots__ = ("workflow", "states", "since", "until", "query", "tags", "run_ids")
    WORKFLOW_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    RUN_IDS_FIELD_NUMBER: _ClassVar[int]
    workflow: str
    states: _containers.RepeatedScalarFieldContainer[_resources_pb2.RunState]
    since: _timestamp_pb2.Timestamp
    until: _timestamp_pb2.Timestamp
    query: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    run_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, workflow: _Optional[str] = ..., states: _Optional[_Iterable[_Union[_resources_pb2.RunState, str]]] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., query: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., run_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class BulkFault(_message.Message):
    __slots__ = ("run_id", "error")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    error: _resources_pb2.Failure
    def __init__(self, run_id: _Optional[str] = ..., error: _Optional[_Union[_resources_pb2.Failure, _Mapping]] = ...) -> None: ...

class BulkJob(_message.Message):
    __slots__ = ("id", "project", "action", "state", "total", "succeeded", "skipped", "failed", "error", "created_at", "ended_at", "total_is_partial", "faults")
    ID_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_IS_PARTIAL_FIELD_NUMBER: _ClassVar[int]
    FAULTS_FIELD_NUMBER: _ClassVar[int]
    id: str
    project: str
    action: BulkAction
    state: BulkJobState
    total: int
    succeeded: int
    skipped: int
    failed: int
    error: _resources_pb2.Failure
    created_at: _timestamp_pb2.Timestamp
    ended_at: _timestamp_pb2.Timestamp
    total_is_partial: bool
    faults: _containers.RepeatedCompositeFieldContainer[BulkFault]
    def __init__(self, id: _Optional[str] = ..., project: _Optional[str] = ..., action: _Optional[_Union[BulkAction, str]] = ..., state: _Optional[_Union[BulkJobState, str]] = ..., total: _Optional[int] = ..., succeeded: _Optional[int] = ..., skipped: _Optional[int] = ..., failed: _Optional[int] = ..., error: _Optional[_Union[_resources_pb2.Failure, _Mapping]] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ended_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., total_is_partial: _Optional[bool] = ..., faults: _Optional[_Iterable[_Union[BulkFault, _Mapping]]] = ...) -> None: ...

class StartBulkJobRequest(_message.Message):
    __slots__ = ("project", "action", "filter", "dry_run")
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    project: str
    action: BulkAction
    filter: RunFilter
    dry_run: bool
    def __init__(self, project: _Optional[str] = ..., action: _Optional[_Union[BulkAction, str]] = ..., filter: _Optional[_Union[RunFilter, _Mapping]] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class StartBulkJobResponse(_message.Message):
    __slots__ = ("job", "sample_run_ids")
    JOB_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_RUN_IDS_FIELD_NUMBER: _ClassVar[int]
    job: BulkJob
    sample_run_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, job: _Optional[_Union[BulkJob, _Mapping]] = ..., sample_run_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class GetBulkJobRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class GetBulkJobResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: BulkJob
    def __init__(self, job: _Optional[_Union[BulkJob, _Mapping]] = ...) -> None: ...

class ListBulkJobsRequest(_message.Message):
    __slots__ = ("project", "page_size", "page_token")
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    project: str
    page_size: int
    page_token: str
    def __init__(self, project: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListBulkJobsResponse(_message.Message):
    __slots__ = ("jobs", "next_page_token")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[BulkJob]
    next_page_token: str
    def __init__(self, jobs: _Optional[_Iterable[_Union[BulkJob, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class StopBulkJobRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class StopBulkJobResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: BulkJob
    def __init__(self, job: _Optional[_Union[BulkJob, _Mapping]] = ...) -> None: ...
