"""The most usual ops as SDKs write them, read in one go.

Nearly every op of a busy system is the result of a step, a sleep or the end of a run, in the one form that SDKs give
it: its members in their order, no blanks, names without escapes. Such a text is recognized here, at a fifth of the cost
of walking it. Whatever is not exactly so, or breaks any rule, is left to `function_op`, which knows every form and
every fault: what is read here is what it would read (`tests/unit/test_plain_op.py`).
"""

from __future__ import annotations

import re

from services.core.domain.duration import parse_duration
from services.core.domain.errors import DomainError
from services.core.domain.json_text import scan_value
from services.core.domain.op import RunCompleted, Sleep, StepCompleted

_LONGEST = 8 * 1024
_MOST_BRACKETS = 100
"""Fewer than the levels of nesting that are allowed, so that no count of levels is needed."""

# Printable ASCII without quotes, backslashes and blanks.
_WORD = r"[!#-\[\]-~]"
_head = re.compile(
    rf'\{{"op":"step_completed","id":"({_WORD}{{1,200}})","name":"({_WORD}{{1,200}})"'
    r'(?:,"max_attempts":([1-9]|1[0-9]|2[01]))?(?:,"duration_ms":(0|[1-9][0-9]{0,14}))?'
).match
_sleep = re.compile(
    rf'\{{"op":"sleep","id":"({_WORD}{{1,200}})","name":"({_WORD}{{1,200}})","duration":(?:"({_WORD}{{1,40}})"|([1-9][0-9]{{0,9}}))'
).match
_END = '{"op":"run_completed","output":'
_INPUT = ',"input":'
_OUTPUT = ',"output":'


def read_plain(
    text: str, start: int, tail: str, *, output_bytes: int, step_id_bytes: int
) -> StepCompleted | Sleep | RunCompleted | None:
    """The op that begins at `start` and is followed by `tail` and nothing else; None if it is not that plain.

    `output_bytes`, `step_id_bytes`: limits of engine section 8.
    """
    if len(text) > _LONGEST or text.count("{", start) + text.count("[", start) > _MOST_BRACKETS:
        return None
    head = _head(text, start)
    if head is None:
        if text.startswith(_END, start):
            output = _last(text, start + len(_END), tail, output_bytes)
            return None if output is None else RunCompleted(output=output)
        return _plain_sleep(text, start, tail, step_id_bytes)
    step_id, name, attempts, duration = head.groups()
    at, given = head.end(), None
    if text.startswith(_INPUT, at):
        began = at + len(_INPUT)
        try:
            _, at = scan_value(text, began)
        except (ValueError, StopIteration):
            return None
        given = text[began:at]
    if not text.startswith(_OUTPUT, at):
        return None
    output = _last(text, at + len(_OUTPUT), tail, output_bytes)
    if output is None or len(step_id) > step_id_bytes:
        return None
    return StepCompleted(
        id=step_id,
        name=name,
        duration_ms=None if duration is None else int(duration),
        input=given,
        max_attempts=None if attempts is None else int(attempts),
        output=output,
    )


def _last(text: str, began: int, tail: str, most_bytes: int) -> str | None:
    """The value at `began`, if it is the last thing before the tail."""
    try:
        _, at = scan_value(text, began)
    except (ValueError, StopIteration):
        return None
    value = text[began:at]
    return value if text[at:] == tail and value.isascii() and len(value) <= most_bytes else None


def _plain_sleep(text: str, start: int, tail: str, step_id_bytes: int) -> Sleep | None:
    found = _sleep(text, start)
    if found is None or text[found.end() :] != tail or len(found[1]) > step_id_bytes:
        return None
    try:
        for_ms = parse_duration(found[3] or int(found[4]))
    except DomainError:
        return None
    return Sleep(id=found[1], name=found[2], for_ms=for_ms)
