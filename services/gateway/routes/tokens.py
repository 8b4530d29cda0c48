"""Routes of API tokens, and of the audit log (engine section 3)."""

from __future__ import annotations

from typing import Any

from runr.workflows.v1 import access_service_pb2 as pb

from services.core.rpc import convert
from services.gateway.kinds import PAGE, TIME, text, text_param, texts
from services.gateway.route import Answer, Input, Route
from services.gateway.shape import Field, Shape
from services.gateway.views.access import (
    AuditView,
    NewTokenView,
    TokenView,
    audit_view,
    new_token_view,
    token_view,
)
from services.gateway.views.json_parts import Page, page

_SERVICE = "/runr.workflows.v1.AccessService/"
_MAX_ABILITIES = 4

_CREATE = Shape(
    (
        Field("name", text(100), required=True),
        Field("abilities", texts(_MAX_ABILITIES, 100)),
        Field("expires_at", TIME),
    )
)


def _create_request(found: Input) -> pb.CreateTokenRequest:
    return pb.CreateTokenRequest(
        name=found.body["name"],
        abilities=found.body.get("abilities", ()),
        expires_at=convert.timestamp(found.body.get("expires_at")),
    )


def _list_request(found: Input) -> pb.ListTokensRequest:
    return pb.ListTokensRequest(page_size=found.query.get("limit", 0), page_token=found.query.get("cursor", ""))


def _list_answer(response: Any, _: Input) -> Answer:
    return Answer(page([token_view(token) for token in response.tokens], response.next_page_token))


def _audit_request(found: Input) -> pb.ListAuditEntriesRequest:
    return pb.ListAuditEntriesRequest(
        page_size=found.query.get("limit", 0),
        page_token=found.query.get("cursor", ""),
        action=found.query.get("action", ""),
    )


def _audit_answer(response: Any, _: Input) -> Answer:
    return Answer(page([audit_view(entry) for entry in response.entries], response.next_page_token))


ROUTES = (
    Route(
        method="POST",
        path="/tokens",
        rpc=_SERVICE + "CreateToken",
        summary="Make an API token; its secret is in this answer only",
        request=_create_request,
        answer=lambda response, _: Answer(new_token_view(response), status=201, headers={"Cache-Control": "no-store"}),
        view=NewTokenView,
        statuses=(201,),
        body=_CREATE,
        shows_secret=True,
    ),
    Route(
        method="GET",
        path="/tokens",
        rpc=_SERVICE + "ListTokens",
        summary="List API tokens",
        request=_list_request,
        answer=_list_answer,
        view=Page[TokenView],
        has_etag=True,
        query=PAGE,
    ),
    Route(
        method="DELETE",
        path="/tokens/{token_id}",
        rpc=_SERVICE + "DeleteToken",
        summary="Take an API token back",
        request=lambda found: pb.DeleteTokenRequest(token_id=found.path["token_id"]),
        answer=lambda _response, _: Answer(None, status=204),
        view=None,
        statuses=(204,),
    ),
    Route(
        method="GET",
        path="/audit",
        rpc=_SERVICE + "ListAuditEntries",
        summary="List the audit log, newest first; `action` is a prefix",
        request=_audit_request,
        answer=_audit_answer,
        view=Page[AuditView],
        query=(*PAGE, text_param("action")),
    ),
)
