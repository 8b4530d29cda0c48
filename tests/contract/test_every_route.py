"""Every route of the API as it is declared: its success, each error that it may answer with, and its examples."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import validate
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from services.cli import http_page
from services.core.domain.errors import DomainError
from services.core.rpc.status import TABLE
from services.gateway.openapi.description import describe
from services.gateway.openapi.operation import problems_of
from services.gateway.route import Route
from services.gateway.routes.table import BASE, ROUTES
from services.gateway.session import Cookies
from tests.support.filled import response_of
from tests.support.grpc_backend import VIEWER
from tests.support.http_gateway import Client, Reply, gateway

DOCUMENT = describe(ROUTES, base=BASE, session_cookie=Cookies().session_name)
REGISTRY: Registry[Any] = Registry().with_resource("doc:", DRAFT202012.create_resource(DOCUMENT))
EVERY = pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
NO_STREAM = pytest.mark.parametrize(
    "route", [route for route in ROUTES if route.events is None], ids=lambda route: f"{route.method} {route.path}"
)
READING = pytest.mark.parametrize(
    "route", [route for route in ROUTES if route.reads_body], ids=lambda route: f"{route.method} {route.path}"
)


def operation(route: Route) -> dict[str, Any]:
    found: dict[str, Any] = DOCUMENT["paths"][route.path][route.method.lower()]
    return found


def check(value: Any, schema: Mapping[str, Any]) -> None:
    """Raises where a value is not what a schema of the document says."""
    if "$ref" in schema:
        schema = {"$ref": "doc:" + schema["$ref"]}
    OAS31Validator(json.loads(json.dumps(schema).replace('"#/', '"doc:#/')), registry=REGISTRY).validate(value)


def body_of(route: Route) -> Any:
    """The example of a route's body; None where it has none."""
    if not route.reads_body:
        return None
    return operation(route)["requestBody"]["content"]["application/json"]["example"]


def path_of(route: Route) -> str:
    examples = {each["name"]: each["example"] for each in operation(route)["parameters"] if "example" in each}
    return BASE + re.sub(r"\{(\w+)\}", lambda match: str(examples[match[1]]), route.path)


async def call(client: Client, route: Route, **options: Any) -> Reply:
    return await client.call(route.method, path_of(route), **({"body": body_of(route)} | options))


def method_of(route: Route) -> str:
    """As the test's server calls it."""
    service, _, name = route.rpc.rpartition(".")[2].partition("/")
    return f"{service.removesuffix('Service').lower()}.{name}"


def answering(route: Route, message: Any) -> dict[str, Any]:
    """The route's method: it answers, or does what `message` does when it is called."""

    async def method(request: Any, context: Any) -> Any:
        answer = message() if callable(message) else message
        if route.events is None:
            return answer
        await context.write(answer)
        return None

    return {method_of(route): method}


class Raising:
    """A method that raises the error of the moment, however often it is called."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def __call__(self) -> None:
        assert self.error is not None
        raise self.error


def test_the_document_is_openapi() -> None:
    validate(DOCUMENT)


def test_every_route_is_in_the_document_under_a_name_of_its_own() -> None:
    described = {(method.upper(), path) for path, found in DOCUMENT["paths"].items() for method in found}
    assert {(route.method, route.path) for route in ROUTES} | {("GET", "/openapi.json"), ("POST", "/mcp")} == described
    names = [operation(route)["operationId"] for route in ROUTES]
    assert len(names) == len(set(names))


async def test_the_document_is_served() -> None:
    async with gateway({}) as client:
        for path in ("/openapi.json", "/api/openapi.json"):
            reply = await client.call("GET", path, token=None, headers={"Accept-Encoding": "gzip"})
            assert (reply.status, reply.json) == (200, json.loads(json.dumps(DOCUMENT)))
            known = await client.call("GET", path, token=None, headers={"If-None-Match": reply.headers["ETag"]})
            assert (known.status, known.body) == (304, b"")


@EVERY
async def test_a_success_is_as_it_is_described(route: Route) -> None:
    message = response_of(route.rpc)
    async with gateway(answering(route, message)) as client:
        reply = await call(client, route)
    assert reply.status in route.statuses, reply.body
    content = operation(route)["responses"][str(reply.status)].get("content", {})
    if not content:
        assert reply.body == b""
    elif route.events is None:
        assert reply.headers["Content-Type"].startswith("application/json")
        check(reply.json, content["application/json"]["schema"])
    else:
        data = re.search(rb"^data: (.*)$", reply.body, re.MULTILINE)
        assert data is not None
        check(json.loads(data[1]), content["text/event-stream"]["x-event-data"])


@EVERY
def test_every_example_is_what_its_schema_says(route: Route) -> None:
    found = operation(route)
    contents = [response.get("content", {}) for response in found["responses"].values()]
    contents.append(found.get("requestBody", {}).get("content", {}))
    for content in (each.get("application/json") for each in contents):
        if content is not None:
            check(content["example"], content["schema"])


@EVERY
async def test_an_error_of_the_service_is_a_problem_that_is_described(route: Route) -> None:
    raising = Raising()
    async with gateway(answering(route, raising)) as client:
        for row in (row for row in TABLE if row.error is not DomainError):
            raising.error = row.error("so it is")
            problem = (await call(client, route)).problem(row.http)
            assert problem["detail"] == "so it is"
            check(problem, DOCUMENT["components"]["schemas"]["Problem"])
            # What a method never raises is not described for its route.
            assert row.http in problems_of(route) or (row.http in (409, 413) and not route.reads_body)


@EVERY
async def test_a_fault_of_the_service_is_masked(route: Route) -> None:
    async with gateway(answering(route, Raising(ZeroDivisionError("secret")))) as client:
        reply = await call(client, route)
    assert "secret" not in str(reply.problem(500))


@EVERY
async def test_who_may_not_is_told_so(route: Route) -> None:
    """Without a token 401; what a token must be allowed to do is asked of the service, by the method's declaration."""
    async with gateway(answering(route, response_of(route.rpc))) as client:
        stranger = await call(client, route, token=None)
        unknown = await call(client, route, token="nobody-knows-this-token")
        viewer = await call(client, route, token=VIEWER)
    if route.public:
        assert (stranger.status, unknown.status) == (route.statuses[0],) * 2
        return
    stranger.problem(401)
    unknown.problem(401)
    if route.permission in (None, "workflows.view"):
        assert viewer.status in route.statuses
    else:
        assert route.permission in viewer.problem(403)["detail"]


@EVERY
async def test_what_is_not_declared_is_refused(route: Route) -> None:
    async with gateway(answering(route, response_of(route.rpc))) as client:
        asked = await client.call(route.method, path_of(route) + "?unheard=1", body=body_of(route))
        assert list(asked.faults()) == ["unheard"]
        if not route.reads_body and route.method != "GET":
            assert (await call(client, route, raw=b"{not read")).status in route.statuses


@READING
async def test_a_body_is_judged(route: Route) -> None:
    async with gateway(answering(route, response_of(route.rpc))) as client:
        headers = {"Content-Encoding": "br"}
        (await call(client, route, headers=headers)).problem(415)
        (await call(client, route, body=None, raw=b" " * ((26 << 20) + 1))).problem(413)
        if route.body is not None:
            (await call(client, route, body=None, raw=b"{")).problem(400)
            assert "unheard" in (await call(client, route, body={"unheard": 1})).faults()


@NO_STREAM
async def test_head_is_get_without_a_body(route: Route) -> None:
    if route.method != "GET":
        return
    async with gateway(answering(route, response_of(route.rpc))) as client:
        reply = await client.call("HEAD", path_of(route))
    assert (reply.status in route.statuses, reply.body) == (True, b"")


def test_every_error_is_told_on_the_page() -> None:
    text = http_page.PAGE.read_text(encoding="utf-8")
    table = text[text.index("| status | when |") : text.index("The table from errors")]
    told = {int(status) for line in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE) for status in line.split(",")}
    assert told == http_page.errors() | {405, 417}
