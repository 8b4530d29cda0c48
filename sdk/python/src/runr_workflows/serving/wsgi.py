"""WSGI."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from wsgiref.types import StartResponse, WSGIEnvironment

from ..protocol import MAX_BODY_BYTES, REQUEST_ID_HEADER, SIGNATURE_HEADER, answer_headers, error_answer
from ..trace import TRACE_HEADERS

_HEADERS = (SIGNATURE_HEADER, REQUEST_ID_HEADER, *TRACE_HEADERS)
_VARIABLES = {name: "HTTP_" + name.upper().replace("-", "_") for name in _HEADERS}


class WsgiApp:
    """A WSGI application."""

    def __init__(self, handle: Callable[[bytes, Mapping[str, str]], tuple[int, bytes]]) -> None:
        self._handle = handle

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answers a request."""
        received = {name: environ[variable] for name, variable in _VARIABLES.items() if variable in environ}
        status, body = self._answer(environ, received)
        headers = [*answer_headers(received).items(), ("Content-Length", str(len(body)))]
        if status == 405:
            headers.append(("Allow", "POST"))
        start_response(f"{status} {HTTPStatus(status).phrase}", headers)
        return [body]

    def _answer(self, environ: WSGIEnvironment, headers: Mapping[str, str]) -> tuple[int, bytes]:
        if environ.get("REQUEST_METHOD") != "POST":
            return 405, error_answer("engine requests are POST")
        length = environ.get("CONTENT_LENGTH") or ""
        if length.isascii() and length.isdigit():
            size = int(length)
        else:
            # Without a length the body ends where the server says so, if it can; else there is none.
            size = MAX_BODY_BYTES + 1 if environ.get("wsgi.input_terminated") else 0
        if length and size > MAX_BODY_BYTES:
            return 413, error_answer(f"the body has {size} bytes, the limit is {MAX_BODY_BYTES}")
        return self._handle(environ["wsgi.input"].read(size), headers)
