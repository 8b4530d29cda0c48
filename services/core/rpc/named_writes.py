"""Calls that their callers name, to have them carried out once however often they ask (`idempotency-key`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

from google.protobuf import descriptor_pool, message_factory

from services.core.domain.errors import Unsupported
from services.core.domain.named_write import keeps_answer, name_of
from services.core.rpc.call_context import Once, current_call, enter_call

WRITE_NAME = "idempotency-key"
"""The metadata that names a write."""


async def perform_named(
    once: Once | None, name: str, inner: Callable[[Any, Any], Any], request: Any, context: Any
) -> Any:
    """The response of a unary method to a request that has a name. The call is entered already.

    Raises Unsupported where nobody can say whether it was carried out: taking a write without heed of its name would be
    worse than refusing it.
    """
    call = current_call()
    if once is None or call.caller is None:
        raise Unsupported("calls of this method cannot be named: leave out the Idempotency-Key")
    form = _response_of(call.method)

    async def carry_out(id: UUID, is_again: bool) -> bytes:
        enter_call(replace(call, id=id, is_again=is_again))
        return bytes((await inner(request, context)).SerializeToString())

    asked = request.SerializeToString(deterministic=True)
    answer = await once.perform(
        call.caller,
        call.method,
        name_of(name),
        asked,
        carry_out,
        keeps_answer=keeps_answer(call.method),
        left_s=context.time_remaining(),
    )
    return form.FromString(answer)


def _response_of(method: str) -> Any:
    service, _, name = method.removeprefix("/").partition("/")
    found = descriptor_pool.Default().FindServiceByName(service).methods_by_name[name]
    return message_factory.GetMessageClass(found.output_type)
