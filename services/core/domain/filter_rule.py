"""What the filters of lists may ask for: texts that a row could hold (engine section 3)."""

from __future__ import annotations

from collections.abc import Mapping

from services.core.domain.errors import FieldError, InvalidInput
from services.core.domain.event import MAX_NAME
from services.core.domain.event_record import EventFilter
from services.core.domain.run_record import RunFilter
from services.core.domain.start_rule import tag_faults
from services.core.domain.text_rule import text_fault

_MAX_BYTES = 255


def check_run_filter(wanted: RunFilter) -> None:
    """Raises InvalidInput with every fault."""
    texts = {"project": wanted.project, "workflow": wanted.workflow, "query": wanted.query}
    _raise(_faults(texts, _MAX_BYTES) + tag_faults(wanted.tags))


def check_event_filter(wanted: EventFilter) -> None:
    """Raises InvalidInput with every fault."""
    _raise(_faults({"name_prefix": wanted.name_prefix}, MAX_NAME) + _faults({"project": wanted.project}, _MAX_BYTES))


def _faults(texts: Mapping[str, str | None], max_bytes: int) -> list[FieldError]:
    return [
        FieldError(path, fault)
        for path, text in texts.items()
        if text is not None and (fault := text_fault(text, max_bytes=max_bytes))
    ]


def _raise(errors: list[FieldError]) -> None:
    if errors:
        raise InvalidInput.of_all(errors)
