"""`runr admin user` and `runr admin member`."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import secrets
import sys

from services.cli.admin.desk import Desk, show, tell
from services.cli.failure import Failure
from services.core.domain.role import OWNER
from services.core.engine.members import add_member, change_role, remove_member
from services.core.engine.passwords import Passwords
from services.core.engine.users import create_user as make_user
from services.core.engine.users import put_password, require_user, set_disabled
from services.core.runtime.ids import ulid_text
from services.core.runtime.service import EXIT_USAGE
from services.core.store.members import find_member, list_members, list_users

_MOST = 100_000
_GENERATED_BYTES = 18


async def create_user(place: Desk, given: argparse.Namespace) -> None:
    """Make a user, and a member of a tenant."""
    if given.role and not given.tenant:
        raise Failure("--role is what the user becomes in a tenant: name it with --tenant", EXIT_USAGE)
    password = None if given.no_password else await _password(generate=given.generate)
    user = await make_user(
        place.connection, place.ids, Passwords(), email=given.email, password=password, actor=place.actor
    )
    member = ""
    if given.tenant:
        role = given.role or OWNER
        await add_member(place.connection, await place.caller(given.tenant), place.ids, email=user.email, role=role)
        member = f", {role} of {given.tenant}"
    shown = password if given.generate else None
    secret = f"\npassword: {shown}" if shown else ""
    tell(
        given,
        {"email": user.email, "tenant": given.tenant, "password": shown},
        f"made the user {user.email}{member}{secret}",
    )


async def show_users(place: Desk, given: argparse.Namespace) -> None:
    """All users."""
    rows = await list_users(place.connection, after=None, limit=_MOST)
    listed = [
        {
            "email": row.email,
            "signs in": row.can_sign_in and not row.disabled,
            "disabled": row.disabled,
            "memberships": row.memberships,
        }
        for row in rows
    ]
    show(given, listed, "no users: `runr admin user create EMAIL --tenant SLUG` makes one")


async def set_password(place: Desk, given: argparse.Namespace) -> None:
    """Another password."""
    # Before the transaction has begun to look: a person who types keeps nothing waiting.
    password = await _password(generate=given.generate)
    user = await require_user(place.connection, given.email)
    await put_password(place.connection, Passwords(), user, password, actor=place.actor)
    shown = password if given.generate else None
    secret = f"\npassword: {shown}" if shown else ""
    tell(
        given,
        {"email": user.email, "password": shown},
        f"{user.email} has another password, and no session any more{secret}",
    )


async def disable_user(place: Desk, given: argparse.Namespace) -> None:
    """Keep a user out."""
    user = await require_user(place.connection, given.email)
    await set_disabled(place.connection, user, disabled=True, actor=place.actor)
    told = {"email": user.email, "disabled": True}
    tell(given, told, f"{user.email} is out, with all tokens and sessions, within 5 s")


async def enable_user(place: Desk, given: argparse.Namespace) -> None:
    """Let a user in again."""
    user = await require_user(place.connection, given.email)
    await set_disabled(place.connection, user, disabled=False, actor=place.actor)
    tell(given, {"email": user.email, "disabled": False}, f"{user.email} may come in again")


async def add(place: Desk, given: argparse.Namespace) -> None:
    """Make a user a member."""
    caller = await place.caller(given.tenant)
    await require_user(place.connection, given.email)
    member = await add_member(place.connection, caller, place.ids, email=given.email, role=given.role)
    told = {"email": member.email, "role": member.role, "tenant": given.tenant}
    tell(given, told, f"{member.email} is {member.role} of {given.tenant}")


async def change(place: Desk, given: argparse.Namespace) -> None:
    """Another role."""
    member = await change_role(
        place.connection, await place.caller(given.tenant), await _member(place, given), given.role
    )
    told = {"email": member.email, "role": member.role, "tenant": given.tenant}
    tell(given, told, f"{member.email} is {member.role} of {given.tenant}")


async def remove(place: Desk, given: argparse.Namespace) -> None:
    """End a membership."""
    await remove_member(place.connection, await place.caller(given.tenant), await _member(place, given))
    told = {"email": given.email, "role": None, "tenant": given.tenant}
    tell(given, told, f"{given.email} is no member of {given.tenant} any more")


async def show_members(place: Desk, given: argparse.Namespace) -> None:
    """The members of a tenant."""
    tenant = await place.tenant(given.tenant)
    rows = await list_members(place.connection, tenant, after=None, limit=_MOST)
    show(given, [{"email": row.email, "role": row.role} for row in rows], f"{given.tenant} has no members")


async def _member(place: Desk, given: argparse.Namespace) -> str:
    user = await require_user(place.connection, given.email)
    member = await find_member(place.connection, await place.tenant(given.tenant), user.id)
    if member is None:
        raise Failure(f"{user.email} is no member of {given.tenant}")
    return ulid_text(member.id)


async def _password(*, generate: bool) -> str:
    """A password from the terminal, twice, or a line of stdin; never from the command line, which others can read."""
    if generate:
        return secrets.token_urlsafe(_GENERATED_BYTES)
    if not sys.stdin.isatty():
        line = str(await asyncio.to_thread(sys.stdin.readline)).rstrip("\r\n")
        if not line:
            raise Failure("there is no password on stdin: --generate makes one up and prints it", EXIT_USAGE)
        return line
    password = str(await asyncio.to_thread(getpass.getpass, "Password: "))
    if password != await asyncio.to_thread(getpass.getpass, "Again: "):
        raise Failure("the two are not the same", EXIT_USAGE)
    return password
