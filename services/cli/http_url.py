"""Whether a text is a URL that can be called."""

from __future__ import annotations

from urllib.parse import urlsplit


def is_http_url(url: str) -> bool:
    """Whether `url` is one of HTTP with a host."""
    try:
        parts = urlsplit(url)
        # A port that is none is told when it is read.
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
