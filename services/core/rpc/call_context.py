"""What a servicer knows of the call it answers: who calls, and the trace it belongs to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from services.core.domain.caller import Caller


class Authenticator(Protocol):
    """Turns a token into a caller. The store-backed one belongs to the service that has a store."""

    async def authenticate(self, token: str, tenant_hint: str | None) -> Caller:
        """The caller behind `token`, in the tenant that `tenant_hint` names (None: the token's own).

        Raises Unauthenticated for a token that is not known or has expired, PermissionDenied for a tenant that the
        caller is not a member of, Unavailable when it cannot tell.
        """
        ...

    async def denied(self, caller: Caller, method: str) -> None:
        """Take note that `caller` was refused `method`, a full method name."""
        ...


class Once(Protocol):
    """Carries out once what callers name. The store-backed one belongs to the service that has a store."""

    async def perform(
        self,
        caller: Caller,
        method: str,
        name: str,
        asked: bytes,
        carry_out: Callable[[UUID, bool], Awaitable[bytes]],
        *,
        keeps_answer: bool,
        left_s: float | None = None,
    ) -> bytes:
        """The answer to the request `asked`, of now or of when it was carried out under this name. Its caller waits for
        `left_s` (None: for ever).

        `carry_out` is told the id of what it makes, and whether it may have been carried out before. Raises what that
        raises, InvalidInput where the name stands for another request, Conflict where it is being carried out or nobody
        knows whether it was, and Unavailable.
        """
        ...


@dataclass(frozen=True, slots=True)
class Call:
    """The call that is being answered. `caller` is None for a public method; `traceparent` is of the server's span.

    `id` is what a named write gives to what it makes: under the same id it is the same write.
    """

    method: str
    caller: Caller | None
    traceparent: str
    trace_id: str
    id: UUID | None = None
    is_again: bool = False


_current: ContextVar[Call] = ContextVar("runr_rpc_call")


def enter_call(call: Call) -> None:
    """Makes `call` the current one of this task; only the server's interceptor does this."""
    _current.set(call)


def current_call() -> Call:
    """The call that this task answers. Raises LookupError outside of one."""
    return _current.get()


def caller() -> Caller:
    """Who calls. Raises LookupError outside a call, and in a method that needs no token."""
    found = current_call().caller
    if found is None:
        raise LookupError(f"{current_call().method} has no caller")
    return found
