"""Replay that answers several ops: the code goes on from step to step within one request (protocol sections 4 and 7).

The steps that are stored, and their ids and order, are those that one request a step would have come to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

from .calls import StepCall
from .interrupt import StepInterrupt
from .lost_steps import StepWatch
from .replay import Replay, Report, StepFlow
from .values import decode

MAX_OPS_BYTES = 4 * 1024 * 1024
"""Once the ops of an answer are over this, it ends."""

MAX_ANSWER_BYTES = 8 * 1024 * 1024 - 1024
"""What all ops of an answer may come to: the engine takes 8 MiB, and something is around them."""

BIG_OP_BYTES = 64 * 1024
"""An op over this ends its answer: where the engine's limits refuse the result, the code must not have gone on."""


@dataclass(frozen=True, slots=True)
class Room:
    """What an answer may hold: `max_ops`, of steps that begin before `until` (of the monotonic clock)."""

    max_ops: int
    until: float | None = None


class CheckpointReplay(Replay):
    """The state of one invocation that answers up to `room.max_ops` ops."""

    def __init__(
        self,
        memo: Mapping[str, Mapping[str, Any]],
        *,
        parallel: bool,
        capture_input: bool,
        room: Room,
        watch: StepWatch | None = None,
    ) -> None:
        super().__init__(memo, parallel=parallel, capture_input=capture_input, watch=watch)
        self._room = room
        self._texts: list[str] = []
        self._bytes = 0
        self._last_step = ""
        self._ends_with_next = False

    @property
    def is_replaying(self) -> bool:
        """Whether the code running now has run in an earlier invocation, as far as the memoized steps tell."""
        return not self._texts and super().is_replaying

    @property
    def takes_turns(self) -> bool:
        """Whether a call that comes while the body of another is executed has its turn after it."""
        return True

    def end_with_next(self) -> None:
        """The op that is made now, or the next one if the answer has none, is the last one.

        For calls of which the replay may not come in the same order: with stored results nothing takes time.
        """
        self._ends_with_next = True

    def perform(self, call: StepCall, step_id: str) -> StepFlow:
        """As in `Replay`; a step that may not begin any more ends the invocation."""
        if self._texts and self.op is None and not self.knows(step_id) and self._is_over_for(call):
            self._finish()
            raise StepInterrupt
        return super().perform(call, step_id)

    def _is_over_for(self, call: StepCall) -> bool:
        late = call.body is not None and self._room.until is not None and monotonic() >= self._room.until
        return self._owner is None and (self._ends_with_next or late)

    def _report(self, call: StepCall, step_id: str, report: Report) -> StepFlow:
        """The result of a body stands, and the code goes on, while there is room; any other op is the last one."""
        if self.op is not None or report.output is None:
            return (yield from super()._report(call, step_id, report))
        size = _size(report)
        if self._texts and self._bytes + size > MAX_ANSWER_BYTES:
            self._finish()  # without it: it is executed again by a request that has room for it
            raise StepInterrupt
        self._add(report, size)
        self._last_step = step_id
        if self._is_full(size):
            self._finish()
            raise StepInterrupt
        self._owner = None
        self.has_progressed = True
        return decode(report.output)

    def _is_full(self, size: int) -> bool:
        """Whether an op of this size is the last one of the answer."""
        return (
            self._ends_with_next
            or len(self._texts) >= self._room.max_ops
            or self._bytes > MAX_OPS_BYTES
            or size > BIG_OP_BYTES
        )

    def _add(self, report: Report, size: int) -> None:
        self._texts.append(report.text)
        self._bytes += size

    def _end(self, report: Report) -> None:
        size = _size(report)
        if self._texts and self._bytes + size > MAX_ANSWER_BYTES:
            self.op = ",".join(self._texts)
            return
        self._add(report, size)
        self.op, self.failure = ",".join(self._texts), report.failure

    def _finish(self) -> None:
        """The invocation ends with the ops that there are."""
        self.op = ",".join(self._texts)
        if self.watch is not None:
            self.watch.answered(self._last_step, self._ids)


def _size(report: Report) -> int:
    return len(report.text) if report.text.isascii() else len(report.text.encode())
