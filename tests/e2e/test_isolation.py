"""Nothing of a tenant is there for another one, which asks every route that names something and may do all at home."""

from __future__ import annotations

import re
from typing import Any

import pytest

from services.gateway.routes.table import ROUTES
from tests.contract.test_every_route import body_of
from tests.support.rest import Rest
from tests.support.stack import Stack
from tests.support.transports import only_over

pytestmark = only_over("http", because="no code of a project is needed")

NAMING = [route for route in ROUTES if "{" in route.path and not route.public]
UNKNOWN = "01JTX4A1V0R8XWQ3M8Z5B2C7DE"


async def things_of(rest: Rest) -> dict[str, str]:
    """Something of every kind in a tenant; parameter of a path → its name."""
    await rest.ok("POST", "/projects", {"slug": "theirs"})
    definition = {"name": "hidden", "triggers": [{"cron": "0 6 * * *"}, {"event": "hidden.begun"}]}
    await rest.ok("PUT", "/projects/theirs/workflows", {"workflows": [definition]})
    run = await rest.ok("POST", "/projects/theirs/workflows/hidden/runs", {"data": {"secret": 1}})
    sent = await rest.send("hidden.begun", {"secret": 1})
    job = await rest.ok("POST", "/projects/theirs/runs/bulk", {"action": "cancel", "filter": {"workflow": "hidden"}})
    token = await rest.ok("POST", "/tokens", {"name": "hidden"})
    return {
        "project": "theirs",
        "workflow": "hidden",
        "trigger": "0",
        "run_id": run["id"],
        "event_id": sent["id"],
        "job_id": job["id"],
        "token_id": token["id"],
        "member_id": UNKNOWN,
    }


@pytest.fixture
async def theirs(stack: Stack, rest: Rest) -> dict[str, str]:
    """What is in a tenant that `rest` is no member of."""
    async with stack.tenant("http") as other:
        return await things_of(other) | {"tenant": other.tenant}


async def test_what_another_tenant_has_is_not_there(rest: Rest, theirs: dict[str, str]) -> None:
    """It is answered as what nobody has: not even that it exists is told."""
    nobody = dict.fromkeys(theirs, UNKNOWN) | {"project": "nobodys", "workflow": "none", "trigger": "0"}
    for route in NAMING:
        foreign = await ask(rest, route, theirs)
        unknown = await ask(rest, route, nobody)
        assert foreign.problem(404)["type"] == unknown.problem(404)["type"], (route.path, foreign.body)
        assert b"secret" not in foreign.body


async def test_another_tenant_cannot_be_chosen(rest: Rest, theirs: dict[str, str]) -> None:
    for tenant in (theirs["tenant"], "nobodys"):
        for route in NAMING:
            reply = await ask(rest, route, theirs, headers={"X-Tenant-ID": tenant})
            assert "member" in reply.problem(403)["detail"]


async def test_lists_hold_nothing_of_another_tenant(rest: Rest, theirs: dict[str, str]) -> None:
    for route in ROUTES:
        if route.method == "GET" and "{" not in route.path:
            reply = await rest.call("GET", route.path)
            assert reply.status == 200, route.path
            assert not any(
                theirs[name].encode() in reply.body for name in ("project", "workflow", "run_id", "event_id")
            )


async def ask(rest: Rest, route: Any, names: dict[str, str], **options: Any) -> Any:
    path = re.sub(r"\{(\w+)\}", lambda match: names[match[1]], route.path)
    return await rest.call(route.method, path, body_of(route), **options)
