"""Step ids as the engine accepts them in ops (engine section 8, protocol sections 3 and 7).

An SDK allows 200 bytes and adds a counter suffix; the engine stores 255 and never cuts, for a cut id would be the id of
another step.
"""

from __future__ import annotations

import re

from services.core.domain.safe_text import cut, storable, utf8_size
from services.core.domain.text_rule import text_fault

MAX_BYTES = 255

_suffix = re.compile(r":[1-9][0-9]*\Z")
_suffixes = re.compile(r"(?::[1-9][0-9]*)+\Z")


def step_id_fault(value: object) -> str | None:
    """Why a decoded value is no step id; None if it is one."""
    return text_fault(value, max_bytes=MAX_BYTES, what="a step id")


def own_bytes(step_id: str) -> int:
    """Bytes of what the user gave, at least: nobody can tell a counter from a user's own `:1` at the end."""
    return utf8_size(_suffixes.sub("", step_id))


def display_name(step_id: str, given: object = None) -> str:
    """The name to show for a step: the op's own, else the id without its counter suffix.

    A name is for people only, so it is mended and never refused: what Postgres cannot store becomes U+FFFD, and it is
    cut to 255 bytes.
    """
    name = given if isinstance(given, str) and given.strip() else _suffix.sub("", step_id) or step_id
    return cut(storable(name), MAX_BYTES)
