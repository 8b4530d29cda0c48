"""Replay for a dry request, which asks what the code would do next and has nothing done (protocol section 4)."""

from __future__ import annotations

from typing import Any

from .calls import StepCall
from .interrupt import StepInterrupt
from .replay import Replay, StepFlow
from .values import encode


class DryReplay(Replay):
    """Notes the step calls, and ends at the first one without a result: no body is executed, nothing is asked for."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.watch = None
        self.calls: dict[str, str] = {}
        """Kinds of the steps that were called, by id, in order."""
        self.next: str | None = None
        """The step that would be next, None where the function has ended."""

    @property
    def is_over(self) -> bool:
        """Always: nothing that the code does counts, and nothing that it logs has happened."""
        return True

    @property
    def is_replaying(self) -> bool:
        """Always."""
        return True

    def begin(self, call: StepCall) -> str:
        """As in `Replay`."""
        step_id = super().begin(call)
        self.calls[step_id] = call.op
        return step_id

    def perform(self, call: StepCall, step_id: str) -> StepFlow:
        """As in `Replay`, for steps that have a result."""
        if self.is_closed or self.knows(step_id):
            return super().perform(call, step_id)
        self.next = step_id
        self.op = encode({"op": "would_run", "id": step_id, "name": call.user_id, "kind": call.op})
        raise StepInterrupt

    def called(self) -> str:
        """The JSON of the calls of memoized steps, in order."""
        known = [{"id": step_id, "kind": kind} for step_id, kind in self.calls.items() if self.knows(step_id)]
        return encode(known)
