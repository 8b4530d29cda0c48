"""How an answer is sent to who asks: not at all where it is known already, and compressed where that is welcome."""

from __future__ import annotations

import gzip
import hashlib

from aiohttp import web

from services.core.domain.errors import Unsupported
from services.core.runtime.off_loop import OffLoop

LEAST_BYTES = 4 * 1024
"""Shorter answers are sent as they are."""

# Most of what there is to win, at a tenth of the time.
_LEVEL = 1
_TAG_BYTES = 16
_CONDITIONS = ("If-Match", "If-Unmodified-Since")


def refuse_conditions(request: web.Request) -> None:
    """Raises Unsupported for a write under a condition: to carry it out regardless would be worse."""
    headers = request.headers
    for name in _CONDITIONS:
        if name in headers and request.method not in ("GET", "HEAD"):
            raise Unsupported(f"writes under a condition ({name}) are not in this version")


def tagged(request: web.Request, response: web.Response) -> web.Response:
    """The answer with its ETag; 304 without a body where it is one of those that the caller has."""
    body = response.body
    assert isinstance(body, bytes)
    tag = f'W/"{hashlib.blake2b(body, digest_size=_TAG_BYTES).hexdigest()}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache", "Vary": "Authorization, Cookie, X-Tenant-ID"}
    if _is_known(tag, request.headers.get("If-None-Match", "")):
        return web.Response(status=304, headers=headers)
    response.headers.update(headers)
    return response


async def compressed(request: web.Request, response: web.Response, off_loop: OffLoop) -> web.Response:
    """A long answer, with gzip if its caller takes that. Not one that holds secrets: how well they are
    compressed would tell of them.
    """
    body = response.body
    if not isinstance(body, bytes) or "no-store" in response.headers.get("Cache-Control", ""):
        return response
    vary = response.headers.get("Vary")
    response.headers["Vary"] = f"{vary}, Accept-Encoding" if vary else "Accept-Encoding"
    if _takes_gzip(request.headers.get("Accept-Encoding", "")):
        response.body = await off_loop.run(len(body), lambda: gzip.compress(body, _LEVEL, mtime=0))
        response.headers["Content-Encoding"] = "gzip"
    return response


def _is_known(tag: str, given: str) -> bool:
    opaque = tag.removeprefix("W/")
    return given.strip() == "*" or any(each.strip().removeprefix("W/") == opaque for each in given.split(","))


def _takes_gzip(accepted: str) -> bool:
    for each in accepted.lower().split(","):
        coding, _, weight = each.partition(";")
        if coding.strip() in ("gzip", "x-gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
