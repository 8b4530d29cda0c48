"""Durable workflows: ordinary functions whose steps survive crashes, redeploys and sleeps of days."""

from .async_step import AsyncStep
from .connect.settings import ConnectOptions
from .context import Context
from .errors import (
    ConnectError,
    DefinitionError,
    Duration,
    InvokeError,
    MiddlewareError,
    NestedStepError,
    NonDeterminismError,
    NonRetriableError,
    RetryAfterError,
    SerializationError,
    SettingsError,
    SharedStepIdError,
    StepArgumentError,
    StepError,
    StepNotAwaitedError,
    UnknownOptionError,
    UnknownStepStatusError,
)
from .event import Event, OutgoingEvent
from .interrupt import StepInterrupt
from .middleware import InvocationOutcome, Middleware, StepInfo, StepOutcome
from .step import Step
from .version import __version__
from .workflows import Workflows

__all__ = [
    "AsyncStep",
    "ConnectError",
    "ConnectOptions",
    "Context",
    "DefinitionError",
    "Duration",
    "Event",
    "InvocationOutcome",
    "InvokeError",
    "Middleware",
    "MiddlewareError",
    "NestedStepError",
    "NonDeterminismError",
    "NonRetriableError",
    "OutgoingEvent",
    "RetryAfterError",
    "SerializationError",
    "SettingsError",
    "SharedStepIdError",
    "Step",
    "StepArgumentError",
    "StepError",
    "StepInfo",
    "StepInterrupt",
    "StepNotAwaitedError",
    "StepOutcome",
    "UnknownOptionError",
    "UnknownStepStatusError",
    "Workflows",
    "__version__",
]
