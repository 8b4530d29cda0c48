"""`ctx.logger`: each line of the code between steps once, not on every replay."""

from __future__ import annotations

import logging

from .replay import Replay


class ReplayLogger(logging.Logger):
    """A child of the ordinary logger of the same name, silent while the invocation repeats what ran before.

    A line is new if no memoized step is passed after it. Whether that is so can be unknown when it is logged (the code
    may have changed and never reach the steps that are left), so such lines are held until the next step call.
    """

    def __init__(self, name: str, replay: Replay, run_id: str) -> None:
        super().__init__(name)
        self.parent = logging.getLogger(name)
        self._replay = replay
        self._run_id = run_id
        self._held: list[tuple[int, logging.LogRecord]] = []

    def handle(self, record: logging.LogRecord) -> None:
        """Passes a record on, holds it, or drops it once the op is known: what is left is only unwinding."""
        if self._replay.is_over:
            return
        record.run_id = self._run_id
        if self._replay.is_replaying:
            self._held.append((self._replay.recalled, record))
            return
        self.flush()
        super().handle(record)

    def flush(self) -> None:
        """Emits the held records that turned out to be new; called at the end of the invocation."""
        held, self._held = self._held, []
        for recalled, record in held:
            if recalled == self._replay.recalled:
                super().handle(record)
