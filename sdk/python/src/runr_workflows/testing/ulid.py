"""Ids of the form that the engine gives, the same in every execution of a test."""

from __future__ import annotations

import hashlib

_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_LENGTH = 26
_MS = 1_767_225_600_000


def ulid(seed: str) -> str:
    """An id for a text. Not by the time either: a crash must not change the ids of what comes after it."""
    random = hashlib.blake2b(seed.encode(), digest_size=10).digest()
    number = int.from_bytes(_MS.to_bytes(6, "big") + random, "big")
    return "".join(_DIGITS[number >> 5 * place & 31] for place in reversed(range(_LENGTH)))
