"""Pages of lists whose order is that of ids: the token is the last id that was looked at."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from services.core.domain.errors import InvalidInput
from services.core.rpc.paging import next_token, position_of
from services.core.runtime.ids import ulid_text, ulid_uuid


def id_after(request: Any) -> UUID | None:
    """The id behind which the page begins that the request asks for; None for the first page. Raises InvalidInput."""
    position = position_of(request, str)
    if position is None:
        return None
    try:
        return ulid_uuid(str(position[0]))
    except ValueError:
        raise InvalidInput.of("page_token", "is not a token of this list", reason="BAD_PAGE_TOKEN") from None


def id_token(request: Any, id: UUID | None) -> str:
    """The token of the page behind an id, "" where there is none."""
    return "" if id is None else next_token(request, [ulid_text(id)])
