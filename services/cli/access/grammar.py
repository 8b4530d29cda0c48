"""What can be said to `runr login`, `logout`, `contexts` and `tokens`."""

from __future__ import annotations

from typing import Any

from services.cli.runs.grammar import add_json, add_paging, add_place, verbs_of


def add_login(commands: Any) -> None:
    """`runr login`, `runr logout` and `runr contexts`."""
    part = commands.add_parser("login", help="keep where an API is and a token for it, for later commands")
    part.add_argument("url", metavar="URL", help="the gateway, as https://runr.example.com")
    part.add_argument("--name", metavar="NAME", help="what to call it (default: the host)")
    part.add_argument("--token-file", metavar="FILE", help="read the token from FILE, - for stdin (default: ask)")
    part.add_argument("--tenant", metavar="SLUG", help="the tenant that is meant where none is named")
    part.add_argument("--project", metavar="SLUG", help="the project that is meant where none is named")
    add_json(part, "print who the token is for")

    part = commands.add_parser("logout", help="forget a context; its token works on until it is revoked")
    part.add_argument("name", metavar="NAME", nargs="?", help="which one (default: the current one)")
    add_json(part, "print what was forgotten")

    verbs = verbs_of(commands.add_parser("contexts", help="what `runr login` has kept"))
    part = verbs.add_parser("list", help="all contexts, without their tokens")
    add_json(part, "print them as JSON")
    part = verbs.add_parser("use", help="make another context the current one; `dev` is the stack of `runr dev`")
    part.add_argument("name", metavar="NAME")
    add_json(part, "print it as JSON")


def add_tokens(commands: Any) -> None:
    """`runr tokens`."""
    verbs = verbs_of(commands.add_parser("tokens", help="API tokens of the tenant"))

    part = verbs.add_parser("create", help="make a token; it is printed this once, alone on stdout")
    part.add_argument("name", metavar="NAME", help="what it is for")
    part.add_argument(
        "--ability",
        metavar="ABILITY",
        action="append",
        default=[],
        help="what it may do, as events.send; repeat (default: all that the token in use may)",
    )
    part.add_argument("--expires", metavar="WHEN", help="after a while, as 90d, or at a time, as 2027-01-01T00:00:00Z")
    add_place(part, project=False)
    add_json(part)

    part = verbs.add_parser("list", help="all tokens, without their secrets")
    add_place(part, project=False)
    add_paging(part)
    add_json(part)

    part = verbs.add_parser("revoke", help="take tokens back: they are refused from now on, within 5 seconds")
    part.add_argument("token", metavar="TOKEN", nargs="+", help="ids of tokens")
    add_place(part, project=False)
    add_json(part, "print the ids that were revoked")
