"""Content codings of answers: gzip and deflate, which nobody asks for and some proxies apply."""

from __future__ import annotations

import zlib

from services.core.domain.op import FunctionFault

_ZLIB_OR_GZIP = 32
_KNOWN = ("gzip", "x-gzip", "deflate")


def decode_whole(body: bytes, encoding: str, limit: int) -> bytes:
    """The plain body. `encoding` is in lower case, `limit` in bytes.

    Raises FunctionFault: AnswerTooLarge, or ProtocolError for what is not whole, or is another coding.
    """
    if not body:
        return body
    if encoding not in _KNOWN:
        raise FunctionFault(
            "ProtocolError", f"the answer has the Content-Encoding {encoding[:40]!a}, which was not asked for"
        )
    unzip = zlib.decompressobj(zlib.MAX_WBITS | _ZLIB_OR_GZIP)
    try:
        plain = unzip.decompress(body, limit + 1)
    except zlib.error as error:
        raise FunctionFault("ProtocolError", f"the answer is not {encoding}: {error}") from None
    if len(plain) > limit:
        raise FunctionFault(
            "AnswerTooLarge", f"an answer may have {limit} bytes, {len(body)} bytes of {encoding} hold more"
        )
    if not unzip.eof:
        raise FunctionFault("ProtocolError", f"the answer's {encoding} ends too early")
    return plain


def decode_prefix(body: bytes, encoding: str, limit: int) -> bytes:
    """What can be read of the beginning of a body, at most `limit` bytes; the body as it is if nothing can."""
    if encoding not in _KNOWN:
        return body
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | _ZLIB_OR_GZIP).decompress(body, limit) or body
    except zlib.error:
        return body
