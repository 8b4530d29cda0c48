"""Pieces that several answers are made of. JSON of users is spliced in as the bytes that were stored."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Generic, TypeVar

import msgspec

from services.core.rpc import convert

T = TypeVar("T")

_NULL = msgspec.Raw(b"null")


class Page(msgspec.Struct, Generic[T], kw_only=True):
    """One page of a list (engine section 3); `next_cursor` is null on the last."""

    data: list[T]
    next_cursor: str | None


class FailureView(msgspec.Struct, kw_only=True):
    """An error of user code, or one that the engine made for it."""

    name: str
    message: str
    stack: str | None


def page(items: list[T], next_page_token: str) -> Page[T]:
    """A page of a list."""
    return Page(data=items, next_cursor=next_page_token or None)


def time_text(message: Any, field: str) -> str | None:
    """A Timestamp field as ISO-8601 in UTC with milliseconds; None where it is unset."""
    unix_ms = convert.unix_ms(message, field)
    return None if unix_ms is None else instant_text(unix_ms)


def instant_text(unix_ms: int) -> str:
    """Unix milliseconds as ISO-8601 in UTC with milliseconds."""
    return f"{_second_text(unix_ms // 1_000)}.{unix_ms % 1_000:03d}Z"


@lru_cache(maxsize=256)
def _second_text(unix_s: int) -> str:
    """Times of one answer, and of those at the same time, are often of the same second."""
    return f"{datetime.fromtimestamp(unix_s, tz=UTC):%Y-%m-%dT%H:%M:%S}"


def payload(message: Any, field: str) -> msgspec.Raw | None:
    """An optional field that holds JSON text; None where it is absent."""
    return raw_json(getattr(message, field)) if message.HasField(field) else None


def raw_json(text: bytes) -> msgspec.Raw:
    """JSON text to be spliced in; empty means null."""
    return msgspec.Raw(text) if text else _NULL


def optional(message: Any, field: str) -> Any:
    """The value of an optional field; None where it is absent."""
    return getattr(message, field) if message.HasField(field) else None


def failure(message: Any, field: str = "error") -> FailureView | None:
    """A Failure field; None where it is absent."""
    if not message.HasField(field):
        return None
    error = getattr(message, field)
    return FailureView(name=error.name, message=error.message, stack=optional(error, "stack"))
