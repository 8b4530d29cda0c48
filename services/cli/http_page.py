"""`python -m services.cli.http_page` writes the routes into docs/http-api.md, from the declarations that route.

A test compares the page with this, so the page cannot say anything else than the code does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from services.gateway.openapi.operation import problems_of
from services.gateway.route import Route
from services.gateway.routes.table import ROUTES
from services.gateway.shape import Shape

PAGE = Path(__file__).resolve().parents[2] / "docs" / "http-api.md"
"""The page."""
_BEGIN, _END = "<!-- routes, written by `python -m services.cli.http_page` -->\n", "<!-- end of routes -->"
_HEAD = (
    "| method and path | permission | does | answers | query | body |",
    "| --- | --- | --- | --- | --- | --- |",
)


def page(text: str) -> str:
    """The page with its routes as they are declared. Raises ValueError for a page that has no place for them."""
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError("the page has no place for routes")
    return before + begin + "\n" + "\n".join((*_HEAD, *_rows())) + "\n\n" + end + after


def _rows() -> Iterator[str]:
    for route in ROUTES:
        permission = "none" if route.public else route.permission or "any token"
        answers = " ".join(map(str, (*route.statuses, *((304,) if route.has_etag else ()))))
        query = " ".join(f"`{param.name}`" for param in route.query)
        cells = (f"`{route.method} {route.path}`", permission, route.summary, answers, query, _body(route))
        yield f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |")


def _body(route: Route) -> str:
    if route.raw is not None:
        return "see below"
    return "" if route.body is None else " ".join(_fields(route.body))


def _fields(shape: Shape) -> Iterator[str]:
    for field in shape.fields:
        yield f"`{field.name}`" if field.required else f"`{field.name}?`"


def errors() -> set[int]:
    """The statuses of errors that any route may answer with."""
    return {status for route in ROUTES for status in problems_of(route)}


if __name__ == "__main__":
    written = page(PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(written, encoding="utf-8")
    sys.stdout.write(f"{PAGE.name} has {len(ROUTES)} routes\n")
