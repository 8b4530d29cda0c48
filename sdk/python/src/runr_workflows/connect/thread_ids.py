"""Threads of a sync workflow that call steps: none may have an id that another could have had."""

from __future__ import annotations

import threading
from collections import Counter
from contextvars import ContextVar

_caller: ContextVar[tuple[int, object] | None] = ContextVar("runr_workflows_caller", default=None)
"""Who calls in this context: its thread, and what tells it from others. A copy in another thread is another caller."""


class ThreadIds:
    """The ids of one invocation, and who has them. Which of two threads comes first is not the same in a replay."""

    def __init__(self) -> None:
        self._owners: dict[str, object] = {}
        self._calls: Counter[str] = Counter()
        self._in_call: Counter[int] = Counter()
        self._outside = object()

    def begin(self, user_id: str, step_id: str, *, has_context: bool) -> bool:
        """A call has got its id. False if that might be another one in a replay.

        Threads without the workflow's context are one caller: one may call while no other is in a call.
        """
        ident = threading.get_ident()
        caller = self._current(ident) if has_context else self._outside
        is_alone = has_context or not self._in_call.keys() - {ident}
        count = self._calls[user_id]
        self._calls[user_id] += 1
        self._in_call[ident] += 1
        self._owners.setdefault(step_id, caller)
        own = user_id if count == 0 else f"{user_id}:{count}"
        return is_alone and self._owners.get(user_id, caller) is caller and self._owners.get(own, caller) is caller

    def end(self) -> None:
        """A call of this thread has ended."""
        ident = threading.get_ident()
        self._in_call[ident] -= 1
        if not self._in_call[ident]:
            del self._in_call[ident]

    def _current(self, ident: int) -> object:
        known = _caller.get()
        if known is None or known[0] != ident:
            known = (ident, object())
            _caller.set(known)
        return known[1]
