import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.rpc import status_pb2 as _status_pb2
from runr.workflows.v1 import options_pb2 as _options_pb2
from runr.workflows.v1 import resources_pb2 as _resources_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ChildrenPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CHILDREN_POLICY_UNSPECIFIED: _ClassVar[ChildrenPolicy]
    CHILDREN_POLICY_CANCEL: _ClassVar[ChildrenPolicy]
    CHILDREN_POLICY_KEEP: _ClassVar[ChildrenPolicy]
CHILDREN_POLICY_UNSPECIFIED: ChildrenPolicy
CHILDREN_POLICY_CANCEL: ChildrenPolicy
CHILDREN_POLICY_KEEP: ChildrenPolicy

class StartRunRequest(_message.Message):
    __slots__ = ("project", "workflow", "data", "idempotency_key", "test", "delay", "at", "tags")
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    TEST_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    project: str
    workflow: str
    data: bytes
    idempotency_key: str
    test: bool
    delay: _duration_pb2.Duration
    at: _timestamp_pb2.Timestamp
    tags: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, project: _Optional[str] = ..., workflow: _Optional[str] = ..., data: _Optional[bytes] = ..., idempotency_key: _Optional[str] = ..., test: _Optional[bool] = ..., delay: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., tags: _Optional[_Iterable[str]] = ...) -> None: ...

class StartRunResponse(_message.Message):
    __slots__ = ("run", "existing")
    RUN_FIELD_NUMBER: _ClassVar[int]
    EXISTING_FIELD_NUMBER: _ClassVar[int]
    run: _resources_pb2.Run
    existing: bool
    def __init__(self, run: _Optional[_Union[_resources_pb2.Run, _Mapping]] = ..., existing: _Optional[bool] = ...) -> None: ...

class SubmitStartsRequest(_message.Message):
    __slots__ = ("items",)
    class Item(_message.Message):
        __slots__ = ("number", "credentials", "request", "id", "again")
        NUMBER_FIELD_NUMBER: _ClassVar[int]
        CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
        REQUEST_FIELD_NUMBER: _ClassVar[int]
        ID_FIELD_NUMBER: _ClassVar[int]
        AGAIN_FIELD_NUMBER: _ClassVar[int]
        number: int
        credentials: _resources_pb2.Credentials
        request: StartRunRequest
        id: bytes
        again: bool
        def __init__(self, number: _Optional[int] = ..., credentials: _Optional[_Union[_resources_pb2.Credentials, _Mapping]] = ..., request: _Optional[_Union[StartRunRequest, _Mapping]] = ..., id: _Optional[bytes] = ..., again: _Optional[bool] = ...) -> None: ...
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[SubmitStartsRequest.Item]
    def __init__(self, items: _Optional[_Iterable[_Union[SubmitStartsRequest.Item, _Mapping]]] = ...) -> None: ...

class SubmitStartsResponse(_message.Message):
    __slots__ = ("items", "now_ms")
    class Item(_message.Message):
        __slots__ = ("number", "response", "status")
        NUMBER_FIELD_NUMBER: _ClassVar[int]
        RESPONSE_FIELD_NUMBER: _ClassVar[int]
        STATUS_FIELD_NUMBER: _ClassVar[int]
        number: int
        response: StartRunResponse
        status: _status_pb2.Status
        def __init__(self, number: _Optional[int] = ..., response: _Optional[_Union[StartRunResponse, _Mapping]] = ..., status: _Optional[_Union[_status_pb2.Status, _Mapping]] = ...) -> None: ...
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[SubmitStartsResponse.Item]
    now_ms: int
    def __init__(self, items: _Optional[_Iterable[_Union[SubmitStartsResponse.Item, _Mapping]]] = ..., now_ms: _Optional[int] = ...) -> None: ...

class GetRunRequest(_message.Message):
    __slots__ = ("run_id", "page_size", "page_token")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    page_size: int
    page_token: str
    def __init__(self, run_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class GetRunResponse(_message.Message):
    __slots__ = ("run", "steps", "children", "next_page_token")
    RUN_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    CHILDREN_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    run: _resources_pb2.Run
    steps: _containers.RepeatedCompositeFieldContainer[_resources_pb2.Step]
    children: _containers.RepeatedCompositeFieldContainer[_resources_pb2.ChildRun]
    next_page_token: str
    def __init__(self, run: _Optional[_Union[_resources_pb2.Run, _Mapping]] = ..., steps: _Optional[_Iterable[_Union[_resources_pb2.Step, _Mapping]]] = ..., children: _Optional[_Iterable[_Union[_resources_pb2.ChildRun, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListRunsRequest(_message.Message):
    __slots__ = ("project", "page_size", "page_token", "workflow", "states", "since", "until", "query", "tags")
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    project: str
    page_size: int
    page_token: str
    workflow: str
    states: _containers.RepeatedScalarFieldContainer[_resources_pb2.RunState]
    since: _timestamp_pb2.Timestamp
    until: _timestamp_pb2.Timestamp
    query: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, project: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., workflow: _Optional[str] = ..., states: _Optional[_Iterable[_Union[_resources_pb2.RunState, str]]] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., query: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ...) -> None: ...

class ListRunsResponse(_message.Message):
    __slots__ = ("runs", "next_page_token")
    RUNS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[_resources_pb2.Run]
    next_page_token: str
    def __init__(self, runs: _Optional[_Iterable[_Union[_resources_pb2.Run, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class WatchRunRequest(_message.Message):
    __slots__ = ("run_id", "cursor")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    cursor: str
    def __init__(self, run_id: _Optional[str] = ..., cursor: _Optional[str] = ...) -> None: ...

class WatchRunResponse(_message.Message):
    __slots__ = ("run", "steps", "cursor", "whole", "ended")
    RUN_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    run: _resources_pb2.Run
    steps: _containers.RepeatedCompositeFieldContainer[_resources_pb2.Step]
    cursor: str
    whole: bool
    ended: bool
    def __init__(self, run: _Optional[_Union[_resources_pb2.Run, _Mapping]] = ..., steps: _Optional[_Iterable[_Union[_resources_pb2.Step, _Mapping]]] = ..., cursor: _Optional[str] = ..., whole: _Optional[bool] = ..., ended: _Optional[bool] = ...) -> None: ...

class AwaitRunRequest(_message.Message):
    __slots__ = ("run_id", "wait")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    wait: _duration_pb2.Duration
    def __init__(self, run_id: _Optional[str] = ..., wait: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class AwaitRunResponse(_message.Message):
    __slots__ = ("run_id", "state", "ended", "output", "error", "ended_at")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    state: _resources_pb2.RunState
    ended: bool
    output: bytes
    error: _resources_pb2.Failure
    ended_at: _timestamp_pb2.Timestamp
    def __init__(self, run_id: _Optional[str] = ..., state: _Optional[_Union[_resources_pb2.RunState, str]] = ..., ended: _Optional[bool] = ..., output: _Optional[bytes] = ..., error: _Optional[_Union[_resources_pb2.Failure, _Mapping]] = ..., ended_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class CancelRunRequest(_message.Message):
    __slots__ = ("run_id", "children")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    CHILDREN_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    children: ChildrenPolicy
    def __init__(self, run_id: _Optional[str] = ..., children: _Optional[_Union[ChildrenPolicy, str]] = ...) -> None: ...

class CancelRunResponse(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: _resources_pb2.Run
    def __init__(self, run: _Optional[_Union[_resources_pb2.Run, _Mapping]] = ...) -> None: ...

class RetryRunRequest(_message.Message):
    __slots__ = ("run_id",)
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    def __init__(self, run_id: _Optional[str] = ...) -> None: ...

class RetryRunResponse(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: _resources_pb2.Run
    def __init__(self, run: _Optional[_Union[_resources_pb2.Run, _Mapping]] = ...) -> None: ...

class ReplayRunRequest(_message.Message):
    __slots__ = ("run_id", "from_step", "data")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_STEP_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    from_step: str
    data: bytes
    def __init__(self, run_id: _Optional[str] = ..., from_step: _Optional[str] = ..., data: _Optional[bytes] = ...) -> None: ...

class ReplayRunResponse(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: _resources_pb2.Run
    def __init__(self, run: _Optional[_Union[_resources_pb2.Run, _Mapping]] = ...) -> None: ...
