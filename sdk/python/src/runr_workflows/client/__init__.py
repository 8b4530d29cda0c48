"""The client of the engine's API: sends events, starts runs, and asks for what became of them."""

from .async_client import AsyncClient, AsyncRunHandle
from .client import Client, RunHandle
from .core import EventFilter, RunFilter, StartOptions
from .errors import ApiError, ApiUnreachable, ClientError, ResultTimeout, RunFailed
from .views import (
    Attempt,
    Child,
    Failure,
    Run,
    RunDetail,
    RunStatus,
    RunStep,
    RunWait,
    SentEvent,
    StoredEvent,
    TriggerEvent,
    Wait,
)

__all__ = [
    "ApiError",
    "ApiUnreachable",
    "AsyncClient",
    "AsyncRunHandle",
    "Attempt",
    "Child",
    "Client",
    "ClientError",
    "EventFilter",
    "Failure",
    "ResultTimeout",
    "Run",
    "RunDetail",
    "RunFailed",
    "RunFilter",
    "RunHandle",
    "RunStatus",
    "RunStep",
    "RunWait",
    "SentEvent",
    "StartOptions",
    "StoredEvent",
    "TriggerEvent",
    "Wait",
]
