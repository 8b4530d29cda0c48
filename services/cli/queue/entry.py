"""One entry of a Redis stream, and the message that the sink of the queue bridge takes of it (engine section 3)."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass

BASE64_SUFFIX = "_base64"
"""Behind the name of a field whose value is not UTF-8, and which JSON can therefore only hold in another form."""

Pairs = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """`deliveries` counts how often it was given to a consumer, this time included."""

    id: str
    fields: Pairs
    deliveries: int = 1

    def message(self) -> bytes:
        """The body of the request to the sink."""
        return json.dumps({"id": self.id, "fields": fields_of(self.fields)}, ensure_ascii=False).encode()


def pairs_of(flat: Sequence[bytes]) -> Pairs:
    """Names and values as Redis tells them, one behind the other."""
    return tuple(zip(flat[::2], flat[1::2], strict=True))


def fields_of(pairs: Pairs) -> dict[str, str | list[str]]:
    """The fields as JSON can hold them, without losing any: a name that comes twice has a list of values."""
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        # What Python cannot write as UTF-8 again, a lone surrogate, no decoding makes.
        shown = name.decode(errors="backslashreplace")
        try:
            text = value.decode()
        except UnicodeDecodeError:
            shown, text = shown + BASE64_SUFFIX, base64.b64encode(value).decode()
        found.setdefault(shown, []).append(text)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}
