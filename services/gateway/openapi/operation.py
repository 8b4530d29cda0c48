"""One route as an operation of the API's description."""

from __future__ import annotations

import re
from collections.abc import Mapping

from services.core.rpc.status import TABLE
from services.gateway.openapi.examples import example_of
from services.gateway.openapi.schemas import Schema, Schemas
from services.gateway.problem import CONTENT_TYPE, Problem
from services.gateway.route import Route
from services.gateway.shape import Param, Shape

TITLES: Mapping[int, str] = {row.http: row.title for row in TABLE} | {
    405: "Method not allowed",
    408: "Request timeout",
    415: "Unsupported encoding",
}
"""What each error is called."""

_DONE: Mapping[int, str] = {
    200: "Done",
    201: "Made",
    202: "Accepted, and not over yet",
    204: "Done; there is nothing to show",
}
_WRITES = ("POST", "PUT", "PATCH", "DELETE")
_PATH_PARAM = re.compile(r"\{(\w+)\}")
_PATH_WORDS: Mapping[str, tuple[str, str]] = {
    "project": ("The project's slug.", "shop"),
    "workflow": ("The workflow's name.", "process-order"),
    "trigger": ("The index of the trigger in the definition.", "0"),
    "run_id": ("The run's id.", "01JTX4A1V0R8XWQ3M8Z5B2C7DE"),
    "event_id": ("The event's id.", "01JTX4A1TZ6G4Q9K2N8P5R3S7T"),
    "job_id": ("The bulk job's id.", "01JTX4A1V0R8XWQ3M8Z5B2C7DE"),
    "token_id": ("The token's id.", "01JTX49Z8Y3H7J5K2M9N6P4Q1R"),
    "member_id": ("The member's id.", "01JTX49Z8Y3H7J5K2M9N6P4Q1R"),
    "tenant": ("The tenant, or `central`.", "acme"),
    "token": ("40 hex digits, derived from the project's signing key.", "0" * 40),
}


def problems_of(route: Route) -> tuple[int, ...]:
    """The statuses of errors that a route may answer with."""
    found = {400, 401, 403, 404, 422, 429, 500, 501, 503}
    if route.method in _WRITES:
        found |= {409}
    if route.reads_body:
        found |= {408, 413, 415}
    if route.path.endswith("{workflow}"):
        found |= {405}  # where the name is one that no workflow can have
    return tuple(sorted(found))


def operation(route: Route, schemas: Schemas) -> Schema:
    """The operation object of a route."""
    made: Schema = {
        "operationId": operation_id(route),
        "summary": route.summary,
        "tags": [_tag(route)],
        "parameters": _parameters(route),
        "responses": {
            **{str(status): _success(route, status, schemas) for status in route.statuses},
            **({"304": {"$ref": "#/components/responses/NotModified"}} if route.has_etag else {}),
            **{str(status): {"$ref": f"#/components/responses/Problem{status}"} for status in problems_of(route)},
        },
        "security": [] if route.public else [{"token": []}, {"session": []}],
    }
    if route.permission is not None:
        made["description"] = f"Needs the ability `{route.permission}`."
        made["x-permission"] = route.permission
    if route.reads_body:
        made["requestBody"] = _body(route)
    return made


def operation_id(route: Route) -> str:
    """A name that is the route's own: its method's. Of the two routes of usage one is about a project."""
    method = route.rpc.rpartition("/")[2]
    of_project = method == "GetUsage" and "{project}" in route.path
    return method[0].lower() + method[1:] + ("OfProject" if of_project else "")


def problem_responses(schemas: Schemas) -> Mapping[str, Schema]:
    """The responses that operations refer to for their errors."""
    problem = schemas.of(Problem)
    return {f"Problem{status}": _problem(status, title, problem) for status, title in sorted(TITLES.items())}


def _problem(status: int, title: str, schema: Schema) -> Schema:
    name = title.lower().replace(" ", "-")
    example = {
        "type": f"https://workflows.runr.dev/problems/{name}",
        "title": title,
        "status": status,
        "detail": title.lower(),
        "errors": [{"path": "events[3].name", "message": "is required"}] if status == 422 else [],
        "trace_id": "0af7651916cd43dd8448eb211c80319c",
    }
    headers: Schema = {"x-trace-id": {"$ref": "#/components/headers/TraceId"}}
    if status in (429, 503):
        headers["Retry-After"] = {"$ref": "#/components/headers/RetryAfter"}
    return {"description": title, "headers": headers, "content": {CONTENT_TYPE: {"schema": schema, "example": example}}}


def _tag(route: Route) -> str:
    return route.rpc.removeprefix("/runr.workflows.v1.").partition("/")[0].removesuffix("Service")


def _parameters(route: Route) -> list[Schema]:
    found = [_path_parameter(name) for name in _PATH_PARAM.findall(route.path)]
    found += [_query_parameter(param) for param in route.query]
    if not route.public:
        found.append({"$ref": "#/components/parameters/Tenant"})
        if route.method in _WRITES:
            found.append({"$ref": "#/components/parameters/IdempotencyKey"})
    if route.events is not None:
        found.append({"$ref": "#/components/parameters/LastEventId"})
    if route.has_etag:
        found.append({"$ref": "#/components/parameters/IfNoneMatch"})
    return found


def _path_parameter(name: str) -> Schema:
    words, example = _PATH_WORDS[name]
    schema: Schema = {"type": "string", "minLength": 1}
    return {"name": name, "in": "path", "required": True, "description": words, "schema": schema, "example": example}


def _query_parameter(param: Param) -> Schema:
    schema = {"type": "array", "items": dict(param.schema)} if param.many else dict(param.schema)
    return {"name": param.name, "in": "query", "schema": schema, **({"explode": True} if param.many else {})}


def _body(route: Route) -> Schema:
    if route.raw is not None:
        schema, example = dict(route.raw.schema), route.raw.example
        required = True
    else:
        assert route.body is not None
        schema = shape_schema(route.body)
        example = example_of(schema, {}, of=operation_id(route))
        required = any(field.required for field in route.body.fields)
    return {"required": required, "content": {"application/json": {"schema": schema, "example": example}}}


def shape_schema(shape: Shape) -> Schema:
    """The JSON schema of a body."""
    required = [field.name for field in shape.fields if field.required]
    return {
        "type": "object",
        "properties": {field.name: dict(field.kind.schema) for field in shape.fields},
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


def _success(route: Route, status: int, schemas: Schemas) -> Schema:
    headers: Schema = {"x-trace-id": {"$ref": "#/components/headers/TraceId"}}
    if route.has_etag and status == 200:
        headers["ETag"] = {"$ref": "#/components/headers/ETag"}
    made: Schema = {"description": _DONE[status], "headers": headers}
    if status == 204 or route.view is None:
        return made
    schema = schemas.of(route.view)
    example = example_of(schema, schemas.components)
    if route.events is not None:
        made["content"] = {
            "text/event-stream": {
                "schema": {"type": "string"},
                "x-event-data": schema,
                "example": "event: change\nid: 9c0f2a11-7731-0-a\ndata: {…}\n\n",
            }
        }
    else:
        made["content"] = {"application/json": {"schema": schema, "example": example}}
    return made
