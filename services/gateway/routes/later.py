"""Routes of the product that this version does not have: each is known, asks for a token, and answers 501."""

from __future__ import annotations

from services.gateway.route import LaterRoute

_PACKAGE = "/runr.workflows.v1."


def _later(method: str, path: str, rpc: str | None, summary: str) -> LaterRoute:
    return LaterRoute(method, path, None if rpc is None else _PACKAGE + rpc, summary)


ROUTES = (
    _later("GET", "/runs/{run_id}/stream", "RunService/WatchRun", "Follow a run by Server-Sent Events"),
    LaterRoute("GET", "/openapi.json", None, "This API's description", public=True),
)
