"""The result of a step as SDKs write it, read in one go.

Nearly every op of a busy system is a `step_completed` in the one form that SDKs give it: its members in their order, no
blanks, names without escapes. Such a text is recognized here, at a fifth of the cost of walking it. Whatever is not
exactly so, or breaks any rule, is left to `function_op`, which knows every form and every fault: what is read here is
what it would read (`tests/unit/test_plain_op.py`).
"""

from __future__ import annotations

import re

from services.core.domain.json_text import scan_value
from services.core.domain.op import StepCompleted

_LONGEST = 8 * 1024
_MOST_BRACKETS = 100
"""Fewer than the levels of nesting that are allowed, so that no count of levels is needed."""

# Printable ASCII without quotes, backslashes and blanks.
_WORD = r"[!#-\[\]-~]"
_head = re.compile(
    rf'\{{"op":"step_completed","id":"({_WORD}{{1,200}})","name":"({_WORD}{{1,200}})"'
    r'(?:,"max_attempts":([1-9]|1[0-9]|2[01]))?(?:,"duration_ms":(0|[1-9][0-9]{0,14}))?'
).match
_INPUT = ',"input":'
_OUTPUT = ',"output":'


def read_plain(text: str, start: int, tail: str, *, output_bytes: int, step_id_bytes: int) -> StepCompleted | None:
    """The op that begins at `start` and is followed by `tail` and nothing else; None if it is not that plain.

    `output_bytes`, `step_id_bytes`: limits of engine section 8.
    """
    if len(text) > _LONGEST or text.count("{", start) + text.count("[", start) > _MOST_BRACKETS:
        return None
    head = _head(text, start)
    if head is None:
        return None
    step_id, name, attempts, duration = head.groups()
    at, given = head.end(), None
    try:
        if text.startswith(_INPUT, at):
            began = at + len(_INPUT)
            _, at = scan_value(text, began)
            given = text[began:at]
        if not text.startswith(_OUTPUT, at):
            return None
        began = at + len(_OUTPUT)
        _, at = scan_value(text, began)
    except (ValueError, StopIteration):
        return None
    output = text[began:at]
    if text[at:] != tail or not output.isascii() or len(output) > output_bytes or len(step_id) > step_id_bytes:
        return None
    return StepCompleted(
        id=step_id,
        name=name,
        duration_ms=None if duration is None else int(duration),
        input=given,
        max_attempts=None if attempts is None else int(attempts),
        output=output,
    )
