"""What can be said to `runr admin`."""

from __future__ import annotations

import argparse
from typing import Any

from services.core.domain.role import OWNER, ROLES

_OPERATOR = "the installation's tenants, users and first tokens, in its database: for whoever runs it"


def add_admin(commands: Any) -> None:
    """`runr admin`."""
    nouns = commands.add_parser("admin", help=_OPERATOR, description=_OPERATOR).add_subparsers(
        dest="noun", required=True, metavar="NOUN"
    )
    _add_tenant(_verbs(nouns, "tenant", "tenants"))
    _add_user(_verbs(nouns, "user", "people who sign in, or own tokens"))
    _add_member(_verbs(nouns, "member", "what users are in a tenant"))
    _add_token(_verbs(nouns, "token", "API tokens of a tenant"))
    part = nouns.add_parser("reseal", help="encrypt all signing keys anew, after RUNR_ENCRYPTION_KEY was changed")
    _json(part)
    part = nouns.add_parser("audit", help="the audit log, newest first")
    part.add_argument("--tenant", metavar="SLUG", help="of this tenant (default: what belongs to none)")
    part.add_argument("--limit", metavar="N", type=int, default=50, help="lines at most (default: 50)")
    _json(part)


def _add_tenant(verbs: Any) -> None:
    part = verbs.add_parser("create", help="make a tenant")
    part.add_argument("slug", metavar="SLUG", help="its name in X-Tenant-ID: a-z, 0-9 and -")
    part.add_argument("--name", default="", help="its name for people (default: the slug)")
    part.add_argument("--owner", metavar="EMAIL", help="a user who becomes its owner")
    _json(part)
    _json(verbs.add_parser("list", help="all tenants"))
    for verb, does in (
        ("disable", "keep everybody out, with every token; its runs go on"),
        ("enable", "let everybody in again"),
    ):
        part = verbs.add_parser(verb, help=does)
        part.add_argument("slug", metavar="SLUG", help="which one")
        _json(part)


def _add_user(verbs: Any) -> None:
    part = verbs.add_parser("create", help="make a user; asks for a password, or reads a line of stdin")
    part.add_argument("email", metavar="EMAIL", help="who")
    how = part.add_mutually_exclusive_group()
    how.add_argument("--generate", action="store_true", help="make up a password and print it")
    how.add_argument("--no-password", action="store_true", help="the user cannot sign in, only own tokens")
    part.add_argument("--tenant", metavar="SLUG", help="a tenant that the user becomes a member of")
    part.add_argument("--role", choices=list(ROLES), help=f"as this (default: {OWNER})")
    _json(part)
    _json(verbs.add_parser("list", help="all users and what they are where"))
    part = verbs.add_parser("password", help="set a password anew, and end the user's sessions")
    part.add_argument("email", metavar="EMAIL", help="who")
    part.add_argument("--generate", action="store_true", help="make up a password and print it")
    _json(part)
    for verb, does in (
        ("disable", "keep a user out of all tenants, with tokens and sessions"),
        ("enable", "let a user in again"),
    ):
        part = verbs.add_parser(verb, help=does)
        part.add_argument("email", metavar="EMAIL", help="which one")
        _json(part)


def _add_member(verbs: Any) -> None:
    part = verbs.add_parser("add", help="make a user a member")
    part.add_argument("email", metavar="EMAIL", help="who")
    part.add_argument("--role", choices=list(ROLES), required=True, help="what the user may do there")
    _tenant(part)
    _json(part)
    part = verbs.add_parser("role", help="give a member another role")
    part.add_argument("email", metavar="EMAIL", help="who")
    part.add_argument("role", choices=list(ROLES), help="what the member may do from now on")
    _tenant(part)
    _json(part)
    part = verbs.add_parser("remove", help="end a membership, and take the member's tokens back")
    part.add_argument("email", metavar="EMAIL", help="who")
    _tenant(part)
    _json(part)
    part = verbs.add_parser("list", help="the members of a tenant")
    _tenant(part)
    _json(part)


def _add_token(verbs: Any) -> None:
    part = verbs.add_parser("create", help="make a token and print its secret, this once")
    part.add_argument("name", metavar="NAME", help="what it is for")
    _tenant(part)
    part.add_argument("--user", metavar="EMAIL", help="of this member (default: of the installation)")
    part.add_argument(
        "--ability",
        metavar="ABILITY",
        action="append",
        default=[],
        help=f"what it may do: {', '.join(ROLES[OWNER])}; repeat (default: all that its user may)",
    )
    part.add_argument("--expires", metavar="DURATION", help="after so long, as 30d (default: never)")
    _json(part)
    part = verbs.add_parser("list", help="the tokens of a tenant")
    _tenant(part)
    _json(part)
    part = verbs.add_parser("revoke", help="take a token back")
    part.add_argument("id", metavar="ID", help="as `list` shows it")
    _tenant(part)
    _json(part)


def _verbs(nouns: Any, noun: str, about: str) -> Any:
    return nouns.add_parser(noun, help=about).add_subparsers(dest="verb", required=True, metavar="VERB")


def _tenant(part: argparse.ArgumentParser) -> None:
    part.add_argument("--tenant", metavar="SLUG", default="default", help="the tenant (default: default)")


def _json(part: argparse.ArgumentParser) -> None:
    part.add_argument("--json", action="store_true", help="print JSON")
