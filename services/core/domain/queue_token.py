"""The address of a project's queue sink: whoever knows it may deliver messages (engine section 3, "Queue bridge").

Its token comes from the project's signing key, so rotating the key changes the address; while the key before signs
along, the old address works too.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

TOKEN_DIGITS = 40


def queue_token(key: str, project: str, queue_stream: str) -> str:
    """The token of a project (its slug) and its stream: 40 hex digits of HMAC-SHA256."""
    said = f"runr queue bridge\n{project}\n{queue_stream}"
    return hmac.new(key.encode(), said.encode(), hashlib.sha256).hexdigest()[:TOKEN_DIGITS]


def token_fits(token: str, keys: Iterable[str], project: str, queue_stream: str) -> bool:
    """Whether the token is of one of the keys. Takes the same time wherever a token differs."""
    given = token.encode(errors="replace")
    fits = False
    for key in keys:
        fits |= hmac.compare_digest(given, queue_token(key, project, queue_stream).encode())
    return fits


def sink_url(base: str, tenant: str, project: str, token: str) -> str:
    """The URL of the sink; `base` is the API's as seen from outside, with or without a slash at its end. Its path where
    there is none.
    """
    return f"{base.rstrip('/')}/api/internal/workflows/queue/{tenant}/{project}/{token}"
