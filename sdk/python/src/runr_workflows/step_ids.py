"""Step ids: the user's id plus a counter suffix (protocol sections 2 and 7 of the replay rules)."""

from __future__ import annotations

from .errors import StepArgumentError

MAX_ID_BYTES = 200
"""Of the user's id, in UTF-8, before the suffix."""


class StepIds:
    """Gives the ids of one invocation, in call order. No two calls share one."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._next: dict[str, int] = {}

    def __contains__(self, step_id: object) -> bool:
        """Whether a call has this id."""
        return step_id in self._used

    def assign(self, user_id: str) -> str:
        """The id of the next call: `add`, then `add:1`, `add:2`; a number that is taken is skipped.

        Raises StepArgumentError (a ValueError) for an id that is not 1–200 bytes of UTF-8, is blank, or holds a NUL
        or a lone surrogate. Ids are neither trimmed nor normalized.
        """
        count = self._next.get(user_id) if isinstance(user_id, str) else None
        if count is None:
            _check(user_id)
            count = 0
        step_id = user_id if count == 0 else f"{user_id}:{count}"
        while step_id in self._used:
            count += 1
            step_id = f"{user_id}:{count}"
        self._used.add(step_id)
        self._next[user_id] = count + 1
        return step_id


def _check(user_id: object) -> None:
    if isinstance(user_id, str) and user_id.isidentifier() and user_id.isascii() and len(user_id) <= MAX_ID_BYTES:
        return
    if not isinstance(user_id, str):
        raise StepArgumentError(f"a step id is a string, not {type(user_id).__name__}")
    if not user_id.strip():
        raise StepArgumentError("a step id must not be empty or blank")
    if "\0" in user_id:
        raise StepArgumentError(f"step id {user_id!r} holds a NUL character")
    try:
        size = len(user_id.encode())
    except UnicodeEncodeError:
        raise StepArgumentError(f"step id {user_id!r} is not valid Unicode (lone surrogate)") from None
    if size > MAX_ID_BYTES:
        raise StepArgumentError(f"a step id has at most {MAX_ID_BYTES} bytes of UTF-8, this one {size}: {user_id!r}")
