"""`runr admin token`."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from datetime import UTC, datetime

from services.cli.admin.desk import Desk, show, tell
from services.cli.failure import Failure
from services.core.domain.caller import Caller
from services.core.domain.duration import parse_duration
from services.core.domain.errors import InvalidInput
from services.core.domain.role import ROLES
from services.core.engine.tokens import create_token, delete_token
from services.core.engine.users import require_user
from services.core.runtime.ids import ulid_text
from services.core.runtime.service import EXIT_USAGE
from services.core.store.access import list_tokens
from services.core.store.members import find_member

_MOST = 100_000


async def create(place: Desk, given: argparse.Namespace) -> None:
    """Make a token and print its secret."""
    maker = await place.caller(given.tenant)
    if given.user is not None:
        maker = await _as_member(place, maker, given)
    made = await create_token(
        place.connection,
        maker,
        place.ids,
        name=given.name,
        abilities=given.ability,
        expires_ms=await _expires_ms(place, given.expires),
    )
    told = {"id": ulid_text(made.row.id), "abilities": list(made.row.abilities), "token": made.secret}
    tell(given, told, f"{made.secret}")
    if not given.json:
        sys.stderr.write(f"made the token {told['id']} ({', '.join(made.row.abilities)}); it is not shown again\n")


async def show_all(place: Desk, given: argparse.Namespace) -> None:
    """The tokens of a tenant."""
    rows = await list_tokens(place.connection, await place.tenant(given.tenant), after=None, limit=_MOST)
    listed = [
        {
            "id": ulid_text(row.id),
            "name": row.name,
            "user": row.email,
            "abilities": list(row.abilities),
            "expires": _day(row.expires_ms),
            "used": _day(row.used_ms),
        }
        for row in rows
    ]
    show(given, listed, f"{given.tenant} has no tokens")


async def revoke(place: Desk, given: argparse.Namespace) -> None:
    """Take a token back."""
    await delete_token(place.connection, await place.caller(given.tenant), given.id)
    tell(given, {"id": given.id}, f"{given.id} is taken back; it works on for 5 s at most")


async def _as_member(place: Desk, operator: Caller, given: argparse.Namespace) -> Caller:
    user = await require_user(place.connection, given.user)
    member = await find_member(place.connection, operator.tenant, user.id)
    if member is None:
        raise Failure(f"{user.email} is no member of {given.tenant}: `runr admin member add` makes one")
    abilities = frozenset(ROLES[member.role])
    return dataclasses.replace(operator, user_id=ulid_text(user.id), role=member.role, abilities=abilities)


async def _expires_ms(place: Desk, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        left_ms = parse_duration(text)
    except InvalidInput as error:
        raise Failure(f"--expires: {error.message}", EXIT_USAGE) from None
    now_ms: int = await place.connection.fetchval("select rt.ms(rt.now())")
    return now_ms + left_ms


def _day(unix_ms: int | None) -> str | None:
    return None if unix_ms is None else f"{datetime.fromtimestamp(unix_ms / 1_000, tz=UTC):%Y-%m-%d}"
