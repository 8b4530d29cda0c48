"""The type of workflow functions, by which what takes one knows what its runs return."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from .async_step import AsyncStep
from .context import Context
from .step import Step

T = TypeVar("T")

WorkflowFunction = Callable[[Context[Any], AsyncStep], Coroutine[Any, Any, T]] | Callable[[Context[Any], Step], T]
"""A function that `@wf.workflow` has registered; T is what it returns, through JSON."""
