"""Errors of the domain: what went wrong, never how it travels.

    DomainError
    ├── InvalidInput         the caller's input breaks a rule; names every fault by path
    ├── TooLarge             a limit is exceeded; names limit and actual size
    ├── Unauthenticated      no token, or one that is not known
    ├── PermissionDenied     a known caller who may not do this
    ├── NotFound             no such thing for this tenant
    ├── Conflict             the thing is in a state that does not allow it
    ├── RateLimited          too many requests; retry later
    ├── Unavailable          a dependency is away; nothing was stored; retry
    └── Unsupported          belongs to the product, not to this version

`core/rpc/status.py` is the only place that turns them into gRPC and HTTP statuses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FieldError:
    """One fault of an input: `path` like `events[3].name` (empty = the whole body) and a text that says what is
    allowed.
    """

    path: str
    message: str


class DomainError(Exception):
    """Base of all errors that a caller may see. `reason` is stable and machine-readable, UPPER_SNAKE_CASE."""

    reason = "INTERNAL"

    def __init__(
        self,
        message: str,
        *,
        reason: str | None = None,
        errors: Sequence[FieldError] = (),
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason or type(self).reason
        self.errors = tuple(errors)
        self.metadata = dict(metadata or {})


class InvalidInput(DomainError):
    """The input breaks a rule. Carries every fault found, not only the first."""

    reason = "INVALID_INPUT"

    @classmethod
    def of(cls, path: str, message: str, *, reason: str | None = None) -> InvalidInput:
        """An error with a single fault."""
        return cls(f"{path}: {message}" if path else message, reason=reason, errors=[FieldError(path, message)])

    @classmethod
    def of_all(cls, errors: Sequence[FieldError], *, reason: str | None = None) -> InvalidInput:
        """An error for a non-empty list of faults; the message shows the first."""
        first = errors[0]
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        text = f"{first.path}: {first.message}" if first.path else first.message
        return cls(text + more, reason=reason, errors=errors)


class Malformed(InvalidInput):
    """The bytes are not the format at all (JSON that does not parse): HTTP 400 rather than 422."""

    reason = "MALFORMED"


class TooLarge(InvalidInput):
    """A size limit is exceeded; the message names limit and actual size."""

    reason = "TOO_LARGE"


class Unauthenticated(DomainError):
    """No token, or one that is not known."""

    reason = "UNAUTHENTICATED"


class PermissionDenied(DomainError):
    """A known caller who may not do this."""

    reason = "PERMISSION_DENIED"


class NotFound(DomainError):
    """No such thing for this tenant; the same whether it exists elsewhere or nowhere."""

    reason = "NOT_FOUND"


class Conflict(DomainError):
    """The thing exists but its state does not allow the operation."""

    reason = "CONFLICT"


class RateLimited(DomainError):
    """Too many requests. `metadata["retry_after_s"]` says when to try again."""

    reason = "RATE_LIMITED"


class Unavailable(DomainError):
    """A dependency is away or overloaded. Nothing was stored; the caller may retry."""

    reason = "UNAVAILABLE"


class Unsupported(DomainError):
    """A part of the product that this version does not have."""

    reason = "UNSUPPORTED"
