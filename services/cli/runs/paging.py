"""Lists of the API, over as many pages as are asked for."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from services.cli.api import ApiClient
from services.cli.failure import Failure
from services.core.runtime.service import EXIT_USAGE

_PAGE = 200


@dataclass(frozen=True, slots=True)
class Listed:
    """Rows as the API shows them, and its cursor for what comes after them, None at the end."""

    rows: list[Any]
    next_cursor: str | None

    def to_json(self) -> str:
        """All of it as one answer of the API."""
        return json.dumps({"data": self.rows, "next_cursor": self.next_cursor}) + "\n"

    def tell_more(self) -> None:
        """Says on stderr that the table does not show everything."""
        if self.next_cursor is not None:
            sys.stderr.write(f"the first {len(self.rows)} are shown; there are more: --limit N, or --all\n")


def most(given: argparse.Namespace) -> int | None:
    """How many rows are wanted; None for all. Raises Failure."""
    if given.all:
        return None
    if given.limit < 1:
        raise Failure(f"--limit {given.limit}: it is at least 1", EXIT_USAGE)
    return int(given.limit)


async def listed(api: ApiClient, path: str, query: Sequence[tuple[str, str]], limit: int | None) -> Listed:
    """The first `limit` rows of a list, or all. Raises ApiFailure."""
    rows: list[Any] = []
    cursor: str | None = None
    while True:
        wanted = _PAGE if limit is None else min(limit - len(rows), _PAGE)
        more = [("cursor", cursor)] if cursor else []
        page = await api.call("GET", f"{path}?{urlencode([('limit', str(wanted)), *query, *more])}")
        rows += page["data"]
        cursor = page["next_cursor"]
        if cursor is None or (limit is not None and len(rows) >= limit):
            return Listed(rows, cursor)
