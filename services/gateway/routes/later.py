"""Routes of the product that this version does not have: each is known, asks for a token, and answers 501."""

from __future__ import annotations

from services.gateway.route import LaterRoute

_PACKAGE = "/runr.workflows.v1."


def _later(method: str, path: str, rpc: str | None, summary: str) -> LaterRoute:
    return LaterRoute(method, path, None if rpc is None else _PACKAGE + rpc, summary)


ROUTES = (
    _later("GET", "/runs/{run_id}/stream", "RunService/WatchRun", "Follow a run by Server-Sent Events"),
    _later("POST", "/tokens", "AccessService/CreateToken", "Make an API token"),
    _later("GET", "/tokens", "AccessService/ListTokens", "List API tokens"),
    _later("DELETE", "/tokens/{token_id}", "AccessService/DeleteToken", "Take an API token back"),
    _later("GET", "/members", "AccessService/ListMembers", "List members"),
    _later("POST", "/members", "AccessService/AddMember", "Add a member"),
    _later("PATCH", "/members/{member_id}", "AccessService/UpdateMember", "Change a member's role"),
    _later("DELETE", "/members/{member_id}", "AccessService/RemoveMember", "Remove a member"),
    _later("GET", "/roles", "AccessService/ListRoles", "The built-in roles"),
    LaterRoute("GET", "/openapi.json", None, "This API's description", public=True),
)
