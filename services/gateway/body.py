"""Reading a request's body: bounded in size and in time."""

from __future__ import annotations

import asyncio

from aiohttp import web

from services.core.domain.errors import Malformed, TooLarge
from services.gateway.problem import SlowClient, UnsupportedEncoding


async def read_body(request: web.Request, *, max_bytes: int, timeout_s: float) -> bytes:
    """The whole body. Raises TooLarge as soon as the limit is passed, SlowClient after `timeout_s`."""
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding.lower() != "identity":
        raise UnsupportedEncoding(f"bodies are taken uncompressed, not with Content-Encoding: {encoding[:40]}")
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


def _too_large(limit: int, actual: str) -> TooLarge:
    return TooLarge(f"the body is limited to {limit} bytes, this one has {actual}", reason="BODY_TOO_LARGE")
