import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.rpc import status_pb2 as _status_pb2
from runr.workflows.v1 import options_pb2 as _options_pb2
from runr.workflows.v1 import resources_pb2 as _resources_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class NewEvent(_message.Message):
    __slots__ = ("name", "data", "id", "ts")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    TS_FIELD_NUMBER: _ClassVar[int]
    name: str
    data: bytes
    id: str
    ts: int
    def __init__(self, name: _Optional[str] = ..., data: _Optional[bytes] = ..., id: _Optional[str] = ..., ts: _Optional[int] = ...) -> None: ...

class SendEventsRequest(_message.Message):
    __slots__ = ("events", "test")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    TEST_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[NewEvent]
    test: bool
    def __init__(self, events: _Optional[_Iterable[_Union[NewEvent, _Mapping]]] = ..., test: _Optional[bool] = ...) -> None: ...

class EventResult(_message.Message):
    __slots__ = ("id", "name", "duplicate", "run_ids", "resumed", "cancelled")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    RUN_IDS_FIELD_NUMBER: _ClassVar[int]
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    duplicate: bool
    run_ids: _containers.RepeatedScalarFieldContainer[str]
    resumed: int
    cancelled: int
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., duplicate: _Optional[bool] = ..., run_ids: _Optional[_Iterable[str]] = ..., resumed: _Optional[int] = ..., cancelled: _Optional[int] = ...) -> None: ...

class SendEventsResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[EventResult]
    def __init__(self, results: _Optional[_Iterable[_Union[EventResult, _Mapping]]] = ...) -> None: ...

class SubmitEventsRequest(_message.Message):
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
        request: SendEventsRequest
        id: bytes
        again: bool
        def __init__(self, number: _Optional[int] = ..., credentials: _Optional[_Union[_resources_pb2.Credentials, _Mapping]] = ..., request: _Optional[_Union[SendEventsRequest, _Mapping]] = ..., id: _Optional[bytes] = ..., again: _Optional[bool] = ...) -> None: ...
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[SubmitEventsRequest.Item]
    def __init__(self, items: _Optional[_Iterable[_Union[SubmitEventsRequest.Item, _Mapping]]] = ...) -> None: ...

class SubmitEventsResponse(_message.Message):
    __slots__ = ("items", "now_ms")
    class Item(_message.Message):
        __slots__ = ("number", "response", "status")
        NUMBER_FIELD_NUMBER: _ClassVar[int]
        RESPONSE_FIELD_NUMBER: _ClassVar[int]
        STATUS_FIELD_NUMBER: _ClassVar[int]
        number: int
        response: SendEventsResponse
        status: _status_pb2.Status
        def __init__(self, number: _Optional[int] = ..., response: _Optional[_Union[SendEventsResponse, _Mapping]] = ..., status: _Optional[_Union[_status_pb2.Status, _Mapping]] = ...) -> None: ...
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[SubmitEventsResponse.Item]
    now_ms: int
    def __init__(self, items: _Optional[_Iterable[_Union[SubmitEventsResponse.Item, _Mapping]]] = ..., now_ms: _Optional[int] = ...) -> None: ...

class ListEventsRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "name_prefix", "source", "project", "since", "until")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    NAME_PREFIX_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    name_prefix: str
    source: _resources_pb2.EventSource
    project: str
    since: _timestamp_pb2.Timestamp
    until: _timestamp_pb2.Timestamp
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., name_prefix: _Optional[str] = ..., source: _Optional[_Union[_resources_pb2.EventSource, str]] = ..., project: _Optional[str] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ListEventsResponse(_message.Message):
    __slots__ = ("events", "next_page_token")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[_resources_pb2.Event]
    next_page_token: str
    def __init__(self, events: _Optional[_Iterable[_Union[_resources_pb2.Event, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetEventRequest(_message.Message):
    __slots__ = ("event_id",)
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    event_id: str
    def __init__(self, event_id: _Optional[str] = ...) -> None: ...

class GetEventResponse(_message.Message):
    __slots__ = ("event",)
    EVENT_FIELD_NUMBER: _ClassVar[int]
    event: _resources_pb2.Event
    def __init__(self, event: _Optional[_Union[_resources_pb2.Event, _Mapping]] = ...) -> None: ...

class DeliverQueueMessageRequest(_message.Message):
    __slots__ = ("tenant", "project", "token", "entry_id", "fields")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    project: str
    token: str
    entry_id: str
    fields: bytes
    def __init__(self, tenant: _Optional[str] = ..., project: _Optional[str] = ..., token: _Optional[str] = ..., entry_id: _Optional[str] = ..., fields: _Optional[bytes] = ...) -> None: ...

class DeliverQueueMessageResponse(_message.Message):
    __slots__ = ("result",)
    RESULT_FIELD_NUMBER: _ClassVar[int]
    result: EventResult
    def __init__(self, result: _Optional[_Union[EventResult, _Mapping]] = ...) -> None: ...
