"""Errors of the client.

ClientError
├── ApiError            the API has answered with an error (RFC 9457)
├── ApiUnreachable      no answer, or none in time
├── RunFailed           the run whose result was asked for has failed, was cancelled or timed out
└── ResultTimeout       the run has not ended in the time given; also a TimeoutError
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .views import Failure, RunStatus

_SHOWN = 200


class ClientError(Exception):
    """What the methods of a client raise, other than for arguments that are wrong."""


class ApiError(ClientError):
    """The API has answered with an error.

    `code` is the kind of the error, the last part of the problem's `type` (`invalid-input`, `not-found`, …); `field`
    the path of the first fault of the input (`events[3].name`), None where there is none; `errors` are all of them, as
    (path, message). `retry_after` are seconds, where the answer says so. The logs of the engine know the request by
    `trace_id`. It was answered so after `requests` of them.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        code: str = "unknown",
        errors: Sequence[tuple[str, str]] = (),
        trace_id: str | None = None,
        retry_after: float | None = None,
        requests: int = 1,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.errors = tuple(errors)
        self.field = (self.errors[0][0] or None) if self.errors else None
        self.trace_id = trace_id
        self.retry_after = retry_after
        self.requests = requests

    def __str__(self) -> str:
        return f"{self.status} {self.code}: {self.message}"


class ApiUnreachable(ClientError):
    """There was no answer, or none in time. `was_sent`: what the request did is not known; else it did nothing."""

    def __init__(self, message: str, *, was_sent: bool) -> None:
        super().__init__(message)
        self.was_sent = was_sent


class RunFailed(ClientError):
    """The run whose result was asked for has not completed. `error` is None for one that was cancelled."""

    def __init__(self, run_id: str, status: RunStatus, error: Failure | None) -> None:
        told = "" if error is None else f": {error['name']}: {error['message']}"
        super().__init__(f"run {run_id} {'timed out' if status == 'timed_out' else status}{told}")
        self.run_id = run_id
        self.status = status
        self.error = error


class ResultTimeout(ClientError, TimeoutError):
    """The run has not ended in the time given. It goes on."""

    def __init__(self, run_id: str, seconds: float) -> None:
        super().__init__(f"run {run_id} has not ended within {seconds:g} s")
        self.run_id = run_id


def api_error(status: int, headers: Mapping[str, str], body: bytes, requests: int) -> ApiError:
    """The error of an answer; header names are in lower case."""
    try:
        problem = json.loads(body)
    except ValueError:
        problem = None
    after = retry_after(headers)
    if not isinstance(problem, dict) or not isinstance(problem.get("type"), str):
        text = body[:_SHOWN].decode(errors="replace")
        return ApiError(f"what answers is not the API: {text}", status=status, retry_after=after, requests=requests)
    return ApiError(
        str(problem.get("detail") or problem.get("title") or ""),
        status=status,
        code=problem["type"].rsplit("/", 1)[-1],
        errors=[_fault(each) for each in problem.get("errors") or ()],
        trace_id=problem.get("trace_id") or headers.get("x-trace-id"),
        retry_after=after,
        requests=requests,
    )


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds of `Retry-After`; None without it, and for a date."""
    text = headers.get("retry-after", "").strip()
    return float(text) if text.isascii() and text.isdigit() else None


def _fault(given: Any) -> tuple[str, str]:
    return (str(given.get("path", "")), str(given.get("message", ""))) if isinstance(given, dict) else ("", str(given))
