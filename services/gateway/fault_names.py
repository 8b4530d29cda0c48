"""Faults of a request, told by the names that its fields have in HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from services.core.domain.errors import FieldError, InvalidInput
from services.gateway.route import Perform


def renamed(names: Mapping[str, str]) -> Callable[[Perform, Any], Awaitable[Any]]:
    """A `perform` that calls once; a fault at or below a path in `names` is told under the other name."""

    async def perform_renamed(perform: Perform, request: Any) -> Any:
        try:
            return await perform(request)
        except InvalidInput as error:
            if not error.errors:
                raise
            faults = [FieldError(_renamed(fault.path, names), fault.message) for fault in error.errors]
            raise InvalidInput.of_all(faults, reason=error.reason) from error

    return perform_renamed


def _renamed(path: str, names: Mapping[str, str]) -> str:
    field, bracket, index = path.partition("[")
    return names.get(field, field) + bracket + index
