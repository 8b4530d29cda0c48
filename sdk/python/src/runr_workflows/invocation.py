"""One invocation of a workflow: an execute request on its way to an op."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from .context import Context
from .definition import Workflow
from .errors import NonRetriableError
from .protocol import ExecuteRequest
from .replay import Replay
from .step import Step


class Invocation:
    """A workflow, the state of its replay and its context."""

    def __init__(
        self, workflow: Workflow, request: ExecuteRequest, replay: Replay, *, trace: Mapping[str, str]
    ) -> None:
        self.workflow = workflow
        self.request = request
        self.replay = replay
        self.context = Context(request, replay, trace)

    def call_sync(self) -> Any:
        """What a sync workflow function returns."""
        value = self.workflow.fn(self.context, Step(self.replay))
        if inspect.iscoroutine(value):
            value.close()
            raise NonRetriableError("the workflow returned a coroutine: define it with `async def`")
        return value

    def run_sync(self) -> str:
        """Runs a sync workflow and returns the JSON of the op, or of several with commas between them."""
        try:
            value = self.call_sync()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self.replay.fail(error)
        else:
            self.replay.returned(value)
        return self.op()

    def op(self) -> str:
        """The JSON of the ops, once the workflow function has returned, raised, or is left at a step."""
        self.context.close()
        assert self.replay.op is not None
        return self.replay.op
