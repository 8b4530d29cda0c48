"""Pages of lists whose order is that of ids: the token is the last id that was looked at."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar
from uuid import UUID

from services.core.domain.errors import InvalidInput
from services.core.rpc.paging import next_token, page_size, position_of
from services.core.runtime.ids import ulid_text, ulid_uuid


class _HasId(Protocol):
    @property
    def id(self) -> UUID | None: ...


Row = TypeVar("Row", bound=_HasId)


async def page_of(
    request: Any, read: Callable[[UUID | None, int], Awaitable[Sequence[Row]]]
) -> tuple[Sequence[Row], str]:
    """The page that the request asks for, and the token of the next one, "" behind the last. `read` answers at most so
    many rows behind an id. Raises InvalidInput for a token that is none of this list.
    """
    size = page_size(request.page_size)
    rows = await read(id_after(request), size + 1)
    page = rows[:size]
    return page, id_token(request, page[-1].id if len(rows) > size else None)


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
