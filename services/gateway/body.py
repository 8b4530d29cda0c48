"""Reading a request's body: bounded in size and in time, whether it is compressed or not."""

from __future__ import annotations

import asyncio
import zlib

from aiohttp import web

from services.core.domain.errors import Malformed, TooLarge
from services.gateway.problem import SlowClient, UnsupportedEncoding

_GZIP = 31  # zlib's word for gzip with its header and its sum


async def read_body(request: web.Request, *, max_bytes: int, timeout_s: float) -> bytes:
    """The whole body, unpacked. Raises TooLarge as soon as the limit is passed, SlowClient after `timeout_s`,
    UnsupportedEncoding, and Malformed for what is not gzip though it says so.
    """
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip"):
        raise UnsupportedEncoding(f"bodies are taken plain or with gzip, not with Content-Encoding: {encoding[:40]}")
    whole = await _read(request, max_bytes=max_bytes, timeout_s=timeout_s)
    return whole if encoding == "identity" else await asyncio.to_thread(_unpacked, whole, max_bytes)


async def _read(request: web.Request, *, max_bytes: int, timeout_s: float) -> bytes:
    announced = request.content_length
    if announced is not None and announced > max_bytes:
        raise _too_large(max_bytes, f"{announced} bytes")
    if request.content.is_eof():  # it came with the headers, as most do
        whole = request.content.read_nowait()
        if len(whole) > max_bytes:
            raise _too_large(max_bytes, f"{len(whole)} bytes")
        return whole
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(timeout_s):
            async for chunk in request.content.iter_any():
                size += len(chunk)
                if size > max_bytes:
                    raise _too_large(max_bytes, "more")
                chunks.append(chunk)
    except TimeoutError:
        raise SlowClient(f"the body did not arrive within {timeout_s:g} s") from None
    except ConnectionError:
        raise Malformed("the client has gone before its body was whole") from None
    except web.RequestPayloadError as error:
        raise Malformed(f"the body cannot be read: {error}") from error
    return b"".join(chunks)


def _unpacked(packed: bytes, max_bytes: int) -> bytes:
    """What a gzip holds. A few bytes may hold gigabytes: no more is unpacked than may be there."""
    unpacking = zlib.decompressobj(_GZIP)
    try:
        whole = unpacking.decompress(packed, max_bytes + 1)
    except zlib.error:
        raise Malformed("the body is no gzip, though Content-Encoding says so") from None
    if len(whole) > max_bytes:
        raise _too_large(max_bytes, "more")
    if not unpacking.eof or unpacking.unused_data:
        raise Malformed("the body is no whole gzip, or there is more behind it")
    return whole


def _too_large(limit: int, actual: str) -> TooLarge:
    return TooLarge(f"the body is limited to {limit} bytes, this one has {actual}", reason="BODY_TOO_LARGE")
