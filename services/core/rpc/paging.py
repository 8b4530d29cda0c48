"""Pages of a list: a clamped size, and an opaque token that holds for one filter only.

A token names the position behind the last item of a page, so pages stay right while the list changes. It is no secret
and no permission: the tenant always comes from the caller.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Sequence
from typing import Any

from services.core.domain.errors import InvalidInput
from services.core.domain.safe_text import is_storable

DEFAULT_PAGE_SIZE = 50
MAX_PAGE_SIZE = 200
_MAX_TOKEN = 2_000
_MAX_PART = 2**31 - 1

Position = list[str | int]


def page_size(requested: int, *, default: int = DEFAULT_PAGE_SIZE, maximum: int = MAX_PAGE_SIZE) -> int:
    """The size of a page: `default` for 0 or less, never over `maximum`."""
    return default if requested <= 0 else min(requested, maximum)


def next_token(request: Any, position: Sequence[str | int]) -> str:
    """The token of the page behind `position`, bound to the filter in the list request."""
    text = json.dumps([_filter_digest(request), list(position)], separators=(",", ":"), ensure_ascii=False)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def position_of(request: Any, *shape: type) -> Position | None:
    """The position in `request.page_token`, None on the first page. `shape` is the type of each of its parts.

    Raises InvalidInput for a token that was not made by `next_token` for this filter and shape.
    """
    token: str = request.page_token
    if not token:
        return None
    try:
        digest, position = json.loads(_decoded(token))
    except (ValueError, TypeError):
        raise _refused("is not a token of this list") from None
    if digest != _filter_digest(request):
        raise _refused("belongs to another filter: start again without it")
    if not isinstance(position, list) or [type(part) for part in position] != list(shape):
        raise _refused("is not a token of this list")
    # Anybody can make a token: its parts are as much from outside as the fields of a request.
    if not all(is_storable(part) if isinstance(part, str) else 0 <= part <= _MAX_PART for part in position):
        raise _refused("is not a token of this list")
    return position


def _decoded(token: str) -> bytes:
    if len(token) > _MAX_TOKEN or not token.isascii():
        raise ValueError("too long, or not base64")
    try:
        return base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError("not base64") from error


def _filter_digest(request: Any) -> str:
    plain = type(request)()
    plain.CopyFrom(request)
    plain.ClearField("page_token")
    plain.ClearField("page_size")
    name = request.DESCRIPTOR.full_name.encode()
    return hashlib.sha256(name + b"\0" + plain.SerializeToString(deterministic=True)).hexdigest()[:16]


def _refused(message: str) -> InvalidInput:
    return InvalidInput.of("page_token", message, reason="BAD_PAGE_TOKEN")
