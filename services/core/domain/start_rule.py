"""What a start over the API may bring: data, idempotency key, tags (engine sections 3 and 8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from services.core.domain.errors import FieldError, InvalidInput, TooLarge
from services.core.domain.json_text import compact_size, parse, payload_text
from services.core.domain.text_rule import json_type, text_fault

MAX_TAGS = 10
MAX_TAG_BYTES = 100


@dataclass(frozen=True, slots=True)
class StartLimits:
    """Bytes of a start's compact data, and of its idempotency key."""

    data_bytes: int = 1_048_576
    key_bytes: int = 255


DEFAULT_LIMITS = StartLimits()


def start_data(data: bytes, limits: StartLimits = DEFAULT_LIMITS, *, path: str = "data") -> str:
    """The text of a JSON object; no bytes at all are {}.

    Raises Malformed for what is not JSON, TooLarge, and InvalidInput for JSON that is not an object.
    """
    if not data:
        return "{}"
    text = payload_text(data, root=path)
    value = parse(text, root=path)
    if not isinstance(value, dict):
        raise InvalidInput.of(path, f"must be a JSON object, not {json_type(value)}")
    if len(data) > limits.data_bytes:
        size = compact_size(text)
        if size > limits.data_bytes:
            raise TooLarge.of(path, f"has {size} bytes, at most {limits.data_bytes} are allowed")
    return text


def check_start(
    *, idempotency_key: str | None, tags: Sequence[str], limits: StartLimits = DEFAULT_LIMITS
) -> tuple[str, ...]:
    """The tags, each once. Raises InvalidInput with every fault."""
    errors = tag_faults(tags)
    if idempotency_key is not None:
        fault = text_fault(idempotency_key, max_bytes=limits.key_bytes)
        if fault:
            errors.append(FieldError("idempotency_key", fault))
    if errors:
        raise InvalidInput.of_all(errors)
    return tuple(dict.fromkeys(tags))


def tag_faults(tags: Sequence[str]) -> list[FieldError]:
    """Why these may not be the tags of a run, or be looked for as such."""
    errors = [
        FieldError(f"tags[{place}]", fault)
        for place, tag in enumerate(tags)
        if (fault := text_fault(tag, max_bytes=MAX_TAG_BYTES))
    ]
    if len(tags) > MAX_TAGS:
        errors.append(FieldError("tags", f"at most {MAX_TAGS} tags, these are {len(tags)}"))
    return errors
