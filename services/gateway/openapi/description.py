"""The API's description in OpenAPI 3.1, from the declarations that route (engine section 3)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from services.core.runtime.version import engine_version
from services.gateway.openapi.operation import operation, problem_responses
from services.gateway.openapi.schemas import Schema, Schemas
from services.gateway.route import Route

_ABOUT = (
    "Durable workflows. Payloads of users are stored and answered byte for byte. Errors are problems of RFC 9457. "
    "Lists are paged with `limit` and `cursor`."
)
_PARAMETERS: Schema = {
    "Tenant": {
        "name": "X-Tenant-ID",
        "in": "header",
        "description": "One of the caller's tenants; the token's own if left out.",
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"},
    },
    "IdempotencyKey": {
        "name": "Idempotency-Key",
        "in": "header",
        "description": "Names the write: asked again under the same key within 24 h it is answered as it was, and not "
        "carried out again.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!#-~][!-~]*$"},
    },
    "IfNoneMatch": {
        "name": "If-None-Match",
        "in": "header",
        "description": "The ETag of an earlier answer: 304 where the answer is still the same.",
        "schema": {"type": "string"},
    },
    "LastEventId": {
        "name": "Last-Event-ID",
        "in": "header",
        "description": "The id of the event behind which to go on.",
        "schema": {"type": "string"},
    },
}
_HEADERS: Schema = {
    "TraceId": {"description": "Leads to the logs of every service.", "schema": {"type": "string"}},
    "RetryAfter": {"description": "Seconds.", "schema": {"type": "string"}},
    "ETag": {"description": "Changes with the answer.", "schema": {"type": "string"}},
}


_JSON_OBJECT = {"content": {"application/json": {"schema": {"type": "object"}}}}
_PROBLEM_401 = {"$ref": "#/components/responses/Problem401"}
# What is no method of a service.
_OTHERS: Schema = {
    "/openapi.json": {
        "get": {
            "operationId": "getDescription",
            "summary": "This description",
            "tags": ["About"],
            "security": [],
            "responses": {"200": {"description": "OpenAPI 3.1", **_JSON_OBJECT}},
        }
    },
    "/mcp": {
        "post": {
            "operationId": "mcp",
            "summary": "MCP streamable HTTP: tools for agents",
            "tags": ["About"],
            "security": [{"token": []}],
            "requestBody": {"required": True, **_JSON_OBJECT},
            "responses": {
                "200": {"description": "JSON-RPC", **_JSON_OBJECT},
                "202": {"description": "A notification was taken"},
                "401": _PROBLEM_401,
                "4XX": {"description": "Not MCP, or not allowed; a problem, or an error of JSON-RPC"},
                "501": {"$ref": "#/components/responses/Problem501"},
            },
        }
    },
}


def describe(routes: Iterable[Route], *, base: str, session_cookie: str) -> Schema:
    """The whole document. `base` stands before every path."""
    routes = tuple(routes)
    schemas = Schemas(route.view for route in routes)
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = operation(route, schemas)
    paths |= _OTHERS
    return {
        "openapi": "3.1.0",
        "info": {"title": "RunR workflows", "version": engine_version(), "description": _ABOUT},
        "servers": [{"url": base}],
        "paths": paths,
        "components": {
            "schemas": dict(schemas.components),
            "responses": {
                "NotModified": {
                    "description": "As it was",
                    "headers": {"ETag": {"$ref": "#/components/headers/ETag"}},
                },
                **problem_responses(schemas),
            },
            "parameters": _PARAMETERS,
            "headers": _HEADERS,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "An API token."},
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": session_cookie,
                    "description": "A session in a browser; writes also need X-CSRF-Token.",
                },
            },
        },
    }
