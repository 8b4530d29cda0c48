"""The REST API as the command line uses it (engine section 3)."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any, Self

import aiohttp

from services.cli.failure import Failure

_TIMEOUT_S = 60.0


class ApiFailure(Failure):
    """The API refused; the text is from its problem answer. `status` is the HTTP status, 0 for no answer."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class ApiClient:
    """A client of one gateway with one token. Use as an async context manager."""

    def __init__(self, base: str, token: str) -> None:
        self._base = base.rstrip("/")
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {token}"}, timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S)
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def call(self, method: str, path: str, body: Any = None, *, raw: bytes | None = None) -> Any:
        """The answer's JSON. `path` starts with `/api/`; `raw` is a body that is JSON already. Raises ApiFailure."""
        try:
            async with self._session.request(method, f"{self._base}{path}", json=body, data=raw) as answer:
                text = await answer.text()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ApiFailure(f"{method} {path}: no answer ({type(error).__name__})", 0) from error
        try:
            content = json.loads(text) if text else None
        except ValueError:
            content = {"title": text[:200]}
        if answer.status >= 400:
            raise ApiFailure(f"{method} {path}: {answer.status} {_explain(content)}", answer.status)
        return content


def _explain(problem: Any) -> str:
    if not isinstance(problem, dict):
        return str(problem)
    parts = [str(problem[key]) for key in ("title", "detail") if problem.get(key)]
    parts += [f"{fault.get('path', '')}: {fault.get('message', '')}" for fault in problem.get("errors") or ()]
    return "; ".join(parts)
