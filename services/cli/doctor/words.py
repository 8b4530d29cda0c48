"""Addresses and errors of libraries, for a reader who does not know our libraries."""

from __future__ import annotations

from urllib.parse import urlsplit

import aiohttp


def address_of(url: str) -> str:
    """Host and port of a URL, without what may be secret."""
    return urlsplit(url).netloc.rpartition("@")[2] or url


def words_of(error: Exception) -> str:
    """What happened."""
    if isinstance(error, ConnectionRefusedError | aiohttp.ClientConnectorError):
        return "nobody listens there"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__
