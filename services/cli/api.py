"""The REST API as the command line uses it (engine section 3)."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from time import monotonic
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import aiohttp

from services.cli.failure import Failure
from services.cli.server_events import ServerEvent, server_events

AWAY = (0, 429, 502, 503, 504)
"""What a gateway that restarts answers; 0 for no answer."""

_OF_A_PROXY = (502, 503, 504)
_NOT_OURS = "what answers there is not the API of RunR"
_TIMEOUT_S = 60.0
_AGAIN_S, _PAUSE_S = 10.0, 0.5
# A stream says something every 15 s.
_STREAM = aiohttp.ClientTimeout(total=None, sock_connect=20.0, sock_read=45.0)


class ApiFailure(Failure):
    """The API refused; the text is from its problem answer. `status` is the HTTP status, 0 for no answer."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class ApiClient:
    """A client of one gateway with one token. Use as an async context manager."""

    def __init__(self, base: str, token: str, *, tenant: str | None = None) -> None:
        """`tenant` is the slug of one of the token's tenants; its own if it is left out."""
        self._base = api_root(base)
        chosen = {} if tenant is None else {"X-Tenant-ID": tenant}
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {token}", **chosen}, timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S)
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def call(self, method: str, path: str, body: Any = None, *, raw: bytes | None = None) -> Any:
        """The answer's JSON. `path` starts with `/api/`; `raw` is a body that is JSON already. Raises ApiFailure."""
        return (await self._ask(method, path, body, raw))[1]

    async def make(self, path: str, raw: bytes) -> tuple[Any, bool]:
        """The JSON that a POST answers, and whether that is new (201) or was there before. Raises ApiFailure."""
        _, made, status = await self._ask("POST", path, None, raw)
        return made, status == HTTPStatus.CREATED

    async def call_surely(self, path: str, raw: bytes) -> Any:
        """The answer's JSON of a POST that is made again for some seconds while the API is away, under one
        `Idempotency-Key`, so that it has its effects once. Raises ApiFailure.
        """
        key = str(uuid4())
        until = monotonic() + _AGAIN_S
        retryable: tuple[int, ...] = AWAY
        while True:
            try:
                return (await self._ask("POST", path, None, raw, {"Idempotency-Key": key}))[1]
            except ApiFailure as failure:
                if failure.status not in retryable or monotonic() > until:
                    raise
                if retryable is AWAY:
                    sys.stderr.write(f"{failure}; it is asked again for {_AGAIN_S:g} s\n")
                    sys.stderr.flush()
                # The call whose answer was lost may be under way still.
                retryable = (*AWAY, HTTPStatus.CONFLICT)
            await asyncio.sleep(_PAUSE_S)

    async def text(self, path: str) -> str:
        """The JSON of a GET as it was written, for payloads that are to stay byte for byte. Raises ApiFailure."""
        return (await self._ask("GET", path, None, None))[0]

    @asynccontextmanager
    async def stream(self, path: str, last_id: str = "") -> AsyncIterator[AsyncIterator[ServerEvent]]:
        """Server-Sent Events behind the one with this id, once the API has begun to tell them. Raises ApiFailure."""
        url = f"{self._base}{path}"
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last_id} if last_id else {})}
        try:
            async with self._session.get(url, headers=headers, timeout=_STREAM) as answer:
                if answer.status >= 400:
                    raise _refused("GET", url, answer.status, await answer.text(errors="replace"))
                yield server_events(answer.content.iter_any())
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ApiFailure(f"GET {url}: {_reason(error)}", 0) from error

    async def _ask(
        self, method: str, path: str, body: Any, raw: bytes | None, headers: Mapping[str, str] | None = None
    ) -> tuple[str, Any, int]:
        url = f"{self._base}{path}"
        try:
            async with self._session.request(method, url, json=body, data=raw, headers=headers) as answer:
                text = await answer.text(errors="replace")
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ApiFailure(f"{method} {url}: {_reason(error)}", 0) from error
        if answer.status >= 400:
            raise _refused(method, url, answer.status, text)
        try:
            return text, json.loads(text) if text else None, answer.status
        except ValueError:
            raise ApiFailure(f"{method} {url}: {_NOT_OURS}", 0) from None


def api_root(url: str) -> str:
    """The gateway's URL. That of the API, with `/api`, is what `runr dev` shows, and means the same."""
    return url.rstrip("/").removesuffix("/api").rstrip("/")


def _refused(method: str, url: str, status: int, text: str) -> ApiFailure:
    try:
        said = _explain(json.loads(text))
    except ValueError:
        said = ""
    if not said and status in _OF_A_PROXY:
        said = "a proxy answers, and the API behind it is away"
    return ApiFailure(f"{method} {url}: {status} {said or _NOT_OURS}", status)


def _reason(error: Exception) -> str:
    """Why there is no answer, for a reader who does not know our libraries."""
    match error:
        case aiohttp.ClientConnectorDNSError():
            return "the host is not known"
        case aiohttp.ClientConnectorCertificateError():
            return f"the certificate is not accepted: {error.certificate_error}"
        case ConnectionRefusedError():
            return "connection refused"
        # Of several addresses that fail, one error without a number is made.
        case OSError(errno=int(number)) if number > 0:
            return os.strerror(number).lower()
        case TimeoutError():
            return f"no answer within {_TIMEOUT_S:g} s"
    return str(error) or "no answer"


def _explain(problem: Any) -> str:
    if not isinstance(problem, dict):
        return ""
    faults = []
    for fault in problem.get("errors") or ():
        path, message = fault.get("path"), str(fault.get("message", ""))
        faults.append(f"{path}: {message}" if path else message)
    title, detail = str(problem.get("title") or ""), str(problem.get("detail") or "")
    # The detail is the first fault and how many more there are: all are told anyway.
    told_again = bool(faults) and detail.startswith(faults[0])
    return "; ".join(part for part in (title, "" if told_again else detail, *faults) if part)
