"""Routes of sessions in browsers, and of who calls (engine section 3)."""

from __future__ import annotations

from typing import Any

from runr.workflows.v1 import access_service_pb2 as pb

from services.core.rpc import convert
from services.gateway.kinds import text
from services.gateway.route import Answer, Input, Route
from services.gateway.session import SessionChange, csrf_token
from services.gateway.shape import Field, Shape
from services.gateway.views.access import CallerView, SessionView, caller_view
from services.gateway.views.json_parts import time_text

_SERVICE = "/runr.workflows.v1.AccessService/"
_MAX_PASSWORD = 1_024
# Anybody may send one: with all of it escaped, a password and an address take half of this.
_SIGN_IN_BYTES = 16 * 1024


def _password(name: str) -> Field:
    return Field(name, text(_MAX_PASSWORD), required=True, is_secret=True)


_SIGN_IN = Shape((Field("email", text(254), required=True), _password("password")))
_PASSWORDS = Shape((_password("current_password"), _password("new_password")))


def _begun(response: Any, status: int) -> Answer:
    view = SessionView(csrf_token=csrf_token(response.secret), expires_at=time_text(response, "expires_at"))
    change = SessionChange(response.secret, convert.unix_ms(response, "expires_at") or 0)
    return Answer(view, status=status, headers={"Cache-Control": "no-store"}, session=change)


def _password_request(found: Input) -> pb.ChangePasswordRequest:
    return pb.ChangePasswordRequest(
        current_password=found.body["current_password"], new_password=found.body["new_password"]
    )


ROUTES = (
    Route(
        method="POST",
        path="/session",
        rpc=_SERVICE + "CreateSession",
        summary="Sign in: sets the session's cookie",
        request=lambda found: pb.CreateSessionRequest(email=found.body["email"], password=found.body["password"]),
        answer=lambda response, _: _begun(response, 201),
        view=SessionView,
        statuses=(201,),
        body=_SIGN_IN,
        most_bytes=_SIGN_IN_BYTES,
        shows_secret=True,
    ),
    Route(
        method="GET",
        path="/session",
        rpc=_SERVICE + "GetCaller",
        summary="Who calls: user, tenant, role and abilities",
        request=lambda _: pb.GetCallerRequest(),
        answer=lambda response, _: Answer(caller_view(response), headers={"Cache-Control": "no-store"}),
        view=CallerView,
    ),
    Route(
        method="POST",
        path="/session/rotate",
        rpc=_SERVICE + "RotateSession",
        summary="Give the session another secret: sets its cookie anew",
        request=lambda _: pb.RotateSessionRequest(),
        answer=lambda response, _: _begun(response, 200),
        view=SessionView,
        body=Shape(()),
        shows_secret=True,
    ),
    Route(
        method="PUT",
        path="/session/password",
        rpc=_SERVICE + "ChangePassword",
        summary="Change the password of the user who has signed in",
        request=_password_request,
        answer=lambda _response, _: Answer(None, status=204),
        view=None,
        statuses=(204,),
        body=_PASSWORDS,
        shows_secret=True,
    ),
    Route(
        method="DELETE",
        path="/session",
        rpc=_SERVICE + "DeleteSession",
        summary="Sign out: the session is over, its cookie removed",
        request=lambda _: pb.DeleteSessionRequest(),
        answer=lambda _response, _: Answer(None, status=204, session=SessionChange(None)),
        view=None,
        statuses=(204,),
    ),
)
