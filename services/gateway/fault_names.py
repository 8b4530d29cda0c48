"""Faults of a request, told by the names that its fields have in HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from services.core.domain.errors import FieldError, InvalidInput
from services.gateway.route import Perform, Route

_EVERYWHERE = {"page_token": "cursor", "page_size": "limit", "since": "from", "until": "to", "name_prefix": "name"}
"""What all routes call alike, and all methods too."""


async def performed(route: Route, perform: Perform, request: Any) -> Any:
    """The response to the request of a route. A fault of a field is told by the name that it has in HTTP."""
    try:
        return await (perform(request) if route.perform is None else route.perform(perform, request))
    except InvalidInput as error:
        names = {**_EVERYWHERE, **route.names}
        faults = [FieldError(_renamed(fault.path, names), fault.message) for fault in error.errors]
        if faults == list(error.errors):
            raise
        first, told = error.errors[0].path, faults[0].path
        message = told + error.message[len(first) :] if error.message.startswith(f"{first}:") else error.message
        raise type(error)(message, reason=error.reason, errors=faults, metadata=error.metadata) from error


def _renamed(path: str, names: Mapping[str, str]) -> str:
    field, bracket, index = path.partition("[")
    return names.get(field, field) + bracket + index
