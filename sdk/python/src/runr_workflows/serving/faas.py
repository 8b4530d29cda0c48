"""Function platforms that call `handler(event, context)`."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import Any

from ..protocol import answer_headers, error_answer


class FaasHandler:
    """A handler whose event is the envelope itself, or an HTTP event: `{"body", "headers", "isBase64Encoded"}`.

    The body may be text, bytes, or what a runtime that parses JSON made of it. Platforms that drop headers are no
    problem: the envelope repeats the signature.
    """

    def __init__(self, handle: Callable[[bytes, Mapping[str, str]], tuple[int, bytes]]) -> None:
        self._handle = handle

    def __call__(self, event: Any, context: object = None) -> dict[str, Any]:
        """Answers an event with `{"statusCode", "headers", "body"}`, the body being JSON text."""
        try:
            body, headers = _unpack(event)
        except (TypeError, ValueError, binascii.Error):
            return _result(400, error_answer("the event holds no body"), {})
        return _result(*self._handle(body, headers), headers)


def _unpack(event: Any) -> tuple[bytes, dict[str, str]]:
    if not isinstance(event, Mapping) or "runr_workflow" in event:
        return _bytes(event), {}
    headers = {str(name): str(value) for name, value in (event.get("headers") or {}).items() if value is not None}
    body = event.get("body")
    if event.get("isBase64Encoded") and isinstance(body, str):
        return base64.b64decode(body, validate=True), headers
    return _bytes(body), headers


def _bytes(body: Any) -> bytes:
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode("utf-8", "surrogatepass")
    if isinstance(body, Mapping):
        return json.dumps(body).encode()
    raise TypeError("no body")


def _result(status: int, body: bytes, request_headers: Mapping[str, str]) -> dict[str, Any]:
    return {"statusCode": status, "headers": answer_headers(request_headers), "body": body.decode()}
