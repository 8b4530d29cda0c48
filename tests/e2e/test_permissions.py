"""Every method, every role, both doors: a token may do the same over gRPC and HTTP, and no tenant sees another's."""

from __future__ import annotations

import asyncio
import base64
import random
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest

from services.core.domain.caller import Caller
from services.core.domain.role import ROLES
from services.core.engine.passwords import Passwords
from services.core.engine.tokens import create_token
from services.core.engine.users import create_user
from services.core.rpc.authorize import ability_of
from services.core.runtime.clock import SystemClock
from services.core.runtime.ids import UlidFactory, ulid_text
from services.core.store.members import insert_member
from services.gateway.route import Route
from services.gateway.routes.table import ROUTES
from services.gateway.shape import Shape
from tests.support.everything import Line, Method, Outcome, is_open, methods
from tests.support.http_gateway import Reply
from tests.support.rest import Rest
from tests.support.stack import Stack

NOTHING = "01M8MT9HTGBBWZAKWD2SJY34S6"
METHODS = methods()
ASKED = [method for method in METHODS if method.is_asked]
DENIED = "permission_denied"
ABILITIES = ROLES["owner"]
# Where a body that fits the route's shape would not fit all that the gateway asks for, or would do harm.
BODIES: Mapping[tuple[str, str], Any] = {
    ("POST", "/events"): {"name": "a"},
    ("PATCH", "/projects/{project}/workflows/app"): {"endpoint_url": None},
    ("PUT", "/projects/{project}/workflows"): {"workflows": []},
    ("PUT", "/projects/{project}/definitions-file"): {"workflows": []},
    ("POST", "/tenants"): {"id": "-"},
}


@dataclass(frozen=True)
class Bearer:
    """A token, and what it may do. `token` None: it brings none."""

    name: str
    token: str | None
    abilities: frozenset[str]


@pytest.fixture
async def tenant(stack: Stack) -> AsyncIterator[Rest]:
    """A tenant of the test's own."""
    await stack.revive()
    async with stack.tenant() as client:
        yield client


@pytest.fixture
async def line(stack: Stack) -> AsyncIterator[Line]:
    """Channels to the services."""
    made = Line(stack)
    yield made
    await made.close()


async def bearers(tenant: Rest) -> list[Bearer]:
    """A token of each role, with all that it holds; one of an owner for each ability; one of the installation."""
    ids = UlidFactory(SystemClock(), random.Random())
    made = [Bearer("installation", tenant.token, frozenset(ABILITIES))]
    connection = await asyncpg.connect(tenant.database_url)
    try:
        async with connection.transaction():
            number = await connection.fetchval("select id from rt.tenant where slug = $1", tenant.tenant)
            for role, given in [(role, ()) for role in ROLES] + [("owner", (ability,)) for ability in ABILITIES]:
                name = ".".join((role, *given))
                email = f"{name}@{tenant.tenant}"
                user = await create_user(connection, ids, Passwords(), email=email, password=None, actor="test")
                await insert_member(connection, id=ids.new(), tenant=number, user=user.id, role=role)
                caller = Caller(number, NOTHING, frozenset(ROLES[role]), role, ulid_text(user.id), email)
                token = await create_token(connection, caller, ids, name=name, abilities=given, expires_ms=None)
                made.append(Bearer(name, token.secret, frozenset(given or ROLES[role])))
    finally:
        await connection.close()
    return made


def may(bearer: Bearer, method: Method) -> bool:
    """Whether a bearer holds the permission that a method declares."""
    ability = ability_of(method.permission)
    return ability is None or ability in bearer.abilities


def denied(outcome: Outcome) -> bool:
    """Whether a call was refused for want of the method's permission."""
    return outcome.kind == DENIED and outcome.reason == "PERMISSION_DENIED"


def filled(path: str, values: Mapping[str, str]) -> str:
    """A route's path with the values, or else something that does not exist, in its places."""
    return re.sub(r"{(\w+)}", lambda place: values.get(place[1], "0" if place[1] == "trigger" else NOTHING), path)


async def call(client: Rest, route: Route, token: str | None, values: Mapping[str, str] | None = None) -> Reply:
    body = BODIES.get((route.method, route.path), smallest(route.body)) if route.reads_body else None
    return await client.call(route.method, filled(route.path, values or {}), body, token=token)


def smallest(shape: Shape | None) -> dict[str, Any]:
    """A body with the fields that a shape requires, of the kinds that it asks for."""
    return {} if shape is None else {each.name: value_of(each.kind.schema) for each in shape.fields if each.required}


def value_of(schema: Mapping[str, Any]) -> Any:
    """A value of a kind."""
    if "anyOf" in schema:
        return value_of(schema["anyOf"][0])
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("format") == "date-time":
        return "2026-01-01T00:00:00Z"
    kind = schema["type"] if isinstance(schema["type"], str) else schema["type"][0]
    return {"string": "x", "boolean": True, "object": {}, "array": [], "integer": 1, "null": None}[kind]


def over_http(reply: Reply) -> Outcome:
    """The outcome of a call over HTTP in the words of gRPC."""
    if reply.status < 400:
        return Outcome("ok")
    kinds = {401: "unauthenticated", 403: DENIED, 404: "not_found"}
    reason = reply.json["type"].rpartition("/")[2].upper().replace("-", "_")
    return Outcome(kinds.get(reply.status, str(reply.status)), reason, reply.json["detail"])


def test_every_method_is_here() -> None:
    assert len(ASKED) > 50
    streams = {method.name for method in METHODS if not method.is_asked}
    assert streams == {"SubmitEvents", "SubmitStarts", "Connect"}
    assert all(is_open(method) for method in METHODS if not method.is_asked)
    assert {method.name for method in ASKED if is_open(method)} == {"CreateSession", "DeliverQueueMessage"}
    known = {method.rpc for method in ASKED}
    assert all(route.rpc in known for route in ROUTES)


async def test_a_token_may_do_the_same_over_grpc_and_http(tenant: Rest, line: Line) -> None:
    holders = await bearers(tenant)
    over_grpc: dict[tuple[str, str], bool] = {}
    refused = set()  # also what a method refuses once the permission is there, as to make somebody more than oneself
    for method in ASKED:
        for bearer in holders:
            outcome = await line.ask(method, method.request({}), bearer.token)
            assert outcome.kind != "unauthenticated" or is_open(method), (method.rpc, bearer.name)
            assert denied(outcome) is not may(bearer, method), (method.rpc, bearer.name, outcome)
            over_grpc[method.rpc, bearer.name] = denied(outcome)
            if outcome.kind == DENIED:
                refused.add((bearer.name, method.name))
    for route in ROUTES:
        for bearer in holders:
            outcome = over_http(await call(tenant, route, bearer.token))
            assert denied(outcome) is over_grpc[route.rpc, bearer.name], (route.path, bearer.name, outcome)
            if outcome.kind == DENIED:
                refused.add((bearer.name, route.rpc.rpartition("/")[2]))
    assert len(refused) > 100
    assert {(who(actor), subject) for actor, subject in await audited(tenant)} == refused


def who(actor: str) -> str:
    """The name of the bearer that a line of the log is about."""
    return actor.partition("@")[0] if "@" in actor else "installation"


async def audited(tenant: Rest) -> list[tuple[str, str]]:
    """Actor and method of every refusal in the tenant's log."""
    found: list[tuple[str, str]] = []
    path = "/audit?action=permission.denied&limit=200"
    cursor = ""
    while True:
        page = await tenant.ok("GET", path + cursor)
        found += [(line["actor"], line["subject"].partition(" (")[0]) for line in page["data"]]
        if page["next_cursor"] is None:
            return found
        cursor = f"&cursor={page['next_cursor']}"


@pytest.mark.parametrize("token", [None, "rt_" + "x" * 43], ids=["none", "unknown"])
async def test_nobody_may_do_anything(tenant: Rest, line: Line, token: str | None) -> None:
    outcomes = {
        method.rpc: await line.ask(method, method.request({}), token) for method in ASKED if not is_open(method)
    }
    assert {outcome.kind for outcome in outcomes.values()} == {"unauthenticated"}
    replies = [await call(tenant, route, token) for route in ROUTES if not route.public]
    assert {reply.status for reply in replies} == {401}


@dataclass(frozen=True)
class Things:
    """What a tenant has, by the names that requests give it."""

    fields: Mapping[str, Any]
    path: Mapping[str, str]


def things(ids: Mapping[str, str]) -> Things:
    """Requests that name these things, and are else as they must be."""
    key = {"project": ids["project"], "workflow": ids["workflow"], "trigger": 0}
    empty = base64.b64encode(b"[]").decode()
    fields = {
        **ids,
        "key": key,
        "is_active": True,
        "role": "viewer",
        "since": "2026-01-01T00:00:00Z",
        "action": 1,
        "filter": {},
        "definitions": empty,
        "endpoint_url": "http://127.0.0.1:9/",
        "page_size": 1,
    }
    return Things({name: value for name, value in fields.items() if name != "tenant"}, {**ids, "trigger": "0"})


async def furnish(client: Rest) -> dict[str, str]:
    """One of everything; their ids by the names of fields."""
    slug = "theirs"
    await client.ok("POST", "/projects", {"slug": slug})
    listed = {"workflows": [{"name": "billing", "triggers": [{"event": "e"}, {"cron": "0 0 1 1 *"}]}]}
    await client.ok("PUT", f"/projects/{slug}/workflows", listed)
    run = (await client.ok("POST", f"/projects/{slug}/workflows/billing/runs", {}))["id"]
    event = (await client.send("e"))["id"]
    job = (await client.ok("POST", f"/projects/{slug}/runs/bulk", {"action": "replay", "filter": {}}))["id"]
    token = (await client.ok("POST", "/tokens", {"name": "theirs"}))["id"]
    connection = await asyncpg.connect(client.database_url)
    try:
        ids = UlidFactory(SystemClock(), random.Random())
        number = await connection.fetchval("select id from rt.tenant where slug = $1", client.tenant)
        user = await create_user(
            connection, ids, Passwords(), email=f"owner@{client.tenant}", password=None, actor="test"
        )
        member = await insert_member(connection, id=ids.new(), tenant=number, user=user.id, role="viewer")
    finally:
        await connection.close()
    assert member is not None
    return {
        "project": slug,
        "workflow": "billing",
        "run_id": run,
        "event_id": event,
        "job_id": job,
        "token_id": token,
        "member_id": ulid_text(member.id),
    }


def naming(method: Method, names: Sequence[str]) -> bool:
    """Whether a request names something that a tenant has."""
    fields = {field.name for field in method.descriptor.input_type.fields}
    return bool(fields & {*names, "key"})


async def test_what_is_another_tenants_is_nothing_to_every_method(stack: Stack, tenant: Rest, line: Line) -> None:
    async with stack.tenant() as other:
        ids = await furnish(other)
        theirs, nothing = things(ids), things(dict.fromkeys(ids, NOTHING) | {"project": "nowhere"})
        asked = [method for method in ASKED if naming(method, list(ids)) and not is_open(method)]
        assert len(asked) > 30
        for method in asked:
            told = []
            for named in (theirs, nothing):
                outcome = await line.ask(method, method.request(named.fields), tenant.token)
                told.append(Outcome(outcome.kind, outcome.reason, nameless(outcome.message, named)))
            assert told[0] == told[1], method.rpc
            assert told[0].kind == "not_found", (method.rpc, told)
        routes = [route for route in ROUTES if "{" in route.path and not route.public]
        for route in routes:
            told = []
            for named in (theirs, nothing):
                outcome = over_http(await call(tenant, route, tenant.token, named.path))
                told.append(Outcome(outcome.kind, outcome.reason, nameless(outcome.message, named)))
            assert told[0] == told[1], route.path
            assert told[0].kind == "not_found", (route.path, told)
        # It is all still there, and its own tenant sees it.
        await asyncio.gather(
            other.ok("GET", f"/runs/{ids['run_id']}"),
            other.ok("GET", f"/events/{ids['event_id']}"),
            other.ok("GET", f"/bulk-jobs/{ids['job_id']}"),
            other.ok("GET", "/projects/theirs/workflows/billing"),
        )
        assert ids["token_id"] in [each["id"] for each in (await other.ok("GET", "/tokens"))["data"]]
        assert ids["member_id"] in [each["id"] for each in (await other.ok("GET", "/members"))["data"]]


def nameless(message: str, named: Things) -> str:
    """A message without what the request has named."""
    for value in named.path.values():
        message = message.replace(value, "…") if len(value) > 1 else message
    return message
