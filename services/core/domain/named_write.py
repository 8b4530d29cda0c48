"""Writes that their callers name (the Idempotency-Key of HTTP): carried out once, answered alike (engine section 3)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum

from services.core.domain.errors import Conflict, InvalidInput, Malformed

KEPT_MS = 24 * 3_600_000
"""So long a name stands for what was asked under it."""

_NAME = re.compile(r"[\x21-\x7e]{1,255}")
_QUOTED = re.compile(r'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')
_PACKAGE = "/runr.workflows.v1."


class Again(Enum):
    """What may be done with a write that was begun when it is not known how that ended."""

    SAME = "same"
    """Carry it out again: it leads to the same state, or finds what it has made by its id."""

    NEVER = "never"
    """Nothing: it could happen twice."""


_SAME = frozenset(
    {
        "EventService/SendEvents",
        "RunService/StartRun",
        "WorkflowService/DeclareWorkflows",
        "WorkflowService/StoreDefinitionsFile",
        "WorkflowService/UpdateWorkflow",
        "ScheduleService/UpdateSchedule",
        "ScheduleService/BackfillSchedule",
        "FunctionService/SyncWorkflows",
        "FunctionService/UpdateApp",
        "AccessService/UpdateProject",
    }
)
# Their answers hold secrets, which are kept nowhere.
_SECRET = frozenset(
    {
        "AccessService/CreateToken",
        "AccessService/CreateSession",
        "AccessService/RotateSession",
        "AccessService/ChangePassword",
        "FunctionService/RevealSigningKey",
    }
)
# Those who find what they have made by its id lose nothing by being carried out twice at once.
_QUICK_MS = {"EventService/SendEvents": 5_000, "RunService/StartRun": 5_000}
# Longer than any call of a careful client may take, and how much longer than one that says how long.
_HOLD_MS = 150_000
_MARGIN_MS = 2_000


def name_of(header: str) -> str:
    """The name in a header: a quoted string, as the standard's draft has it, or the bare text. Raises Malformed."""
    given = header.strip()
    quoted = _QUOTED.fullmatch(given)
    name = re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else given
    if not _NAME.fullmatch(name) or (given.startswith('"') and not quoted):
        raise Malformed("Idempotency-Key must have 1 to 255 visible ASCII characters", reason="IDEMPOTENCY_KEY")
    return name


def again(method: str) -> Again:
    """What may be done when a write of this full method name is asked again."""
    return Again.SAME if method.removeprefix(_PACKAGE) in _SAME else Again.NEVER


def keeps_answer(method: str) -> bool:
    """Whether the answer of a write may be kept."""
    return method.removeprefix(_PACKAGE) not in _SECRET


def hold_ms(method: str, left_ms: float | None) -> int:
    """How long a write belongs to whoever has begun it, whose caller waits for `left_ms` (None: for ever)."""
    longest = _QUICK_MS.get(method.removeprefix(_PACKAGE), _HOLD_MS)
    return longest if left_ms is None else round(min(longest, max(0.0, left_ms) + _MARGIN_MS))


def other_write() -> InvalidInput:
    """The name stands for another write."""
    return InvalidInput(
        "this Idempotency-Key was used for another request: use a new one for each", reason="IDEMPOTENCY_KEY_REUSED"
    )


def in_progress(retry_after_s: int = 1) -> Conflict:
    """Somebody carries it out."""
    metadata: Mapping[str, str] = {"retry_after_s": str(retry_after_s)}
    return Conflict(
        "the request with this Idempotency-Key is being carried out: ask again in a moment",
        reason="IDEMPOTENCY_IN_PROGRESS",
        metadata=metadata,
    )


def not_known() -> Conflict:
    """It was begun, nobody knows how it ended, and once more could be twice."""
    return Conflict(
        "the request with this Idempotency-Key was cut off, and whether it was carried out is not known: "
        "look, and use a new key if it was not",
        reason="IDEMPOTENCY_OUTCOME_UNKNOWN",
    )


def answer_not_kept() -> Conflict:
    """It was carried out, and its answer held a secret."""
    return Conflict(
        "the request with this Idempotency-Key was carried out; its answer held a secret, which is not kept",
        reason="IDEMPOTENCY_ANSWER_NOT_KEPT",
    )
