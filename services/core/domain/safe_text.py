"""Text from outside, made fit for a Postgres text column and a limit."""

from __future__ import annotations

import re

_unstorable = re.compile("[\x00\ud800-\udfff]")


def storable(text: str) -> str:
    """The text with every NUL and every lone surrogate replaced by U+FFFD: Postgres's text can hold neither."""
    return _unstorable.sub("\ufffd", text)


def is_storable(text: str) -> bool:
    """Whether `storable` would leave the text as it is."""
    return "\0" not in text if text.isascii() else _unstorable.search(text) is None


def cut(text: str, max_bytes: int) -> str:
    """The longest beginning of a storable text that fits into `max_bytes` of UTF-8, whole characters only."""
    if len(text) * 4 <= max_bytes:
        return text
    return text.encode()[:max_bytes].decode(errors="ignore")


def utf8_size(text: str) -> int:
    """Bytes of the text as UTF-8. The text has no lone surrogate."""
    return len(text) if text.isascii() else len(text.encode())
