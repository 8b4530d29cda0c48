"""Which API a command talks to, with which token, and what it means where no tenant or project is named.

The first that is there: the context of `--context`; RUNR_API_URL and RUNR_TOKEN; the context that RUNR_CONTEXT names;
the stack of `runr dev` that RUNR_HOME names; the current context of `runr login`; the stack in the folder. RUNR_TOKEN
replaces the token of any of them but the first.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass

from services.cli.contexts import DEV, Contexts
from services.cli.failure import Failure
from services.cli.http_url import is_http_url
from services.core.runtime.service import EXIT_USAGE
from services.embedded.home import Home

_URL, _TOKEN, _CONTEXT, _HOME = "RUNR_API_URL", "RUNR_TOKEN", "RUNR_CONTEXT", "RUNR_HOME"
_DEFAULT_PROJECT = "default"


@dataclass(frozen=True, slots=True)
class Reached:
    """An API as a command talks to it. `tenant` None: the token's own."""

    url: str
    token: str
    tenant: str | None = None
    project: str = _DEFAULT_PROJECT


def with_context(environ: Mapping[str, str], name: str | None) -> Mapping[str, str]:
    """The environment in which a context is chosen, over what else says where the API is."""
    if name is None:
        return environ
    return {**{key: value for key, value in environ.items() if key not in (_URL, _TOKEN)}, _CONTEXT: name}


def reach(environ: Mapping[str, str]) -> Reached:
    """The API. Raises Failure."""
    given, token = environ.get(_URL), environ.get(_TOKEN)
    if given:
        # Tokens that are kept are for where they come from: they are not shown to another one.
        if not token:
            raise Failure(f"{_TOKEN} is not set: a token for the API at {_URL}", EXIT_USAGE)
        return Reached(_checked(given, _URL), token)
    contexts = Contexts.of(environ)
    name = _name(environ, contexts)
    if name == DEV:
        return _of_stack(environ, token)
    context = contexts.get(name)
    return Reached(
        _checked(context.url, f"the URL of context {name}"),
        token or context.token,
        context.tenant,
        context.project or _DEFAULT_PROJECT,
    )


def place(environ: Mapping[str, str], given: argparse.Namespace) -> None:
    """Fills in which tenant and project are meant where a command that names them has not. Raises Failure."""
    if not hasattr(given, "has_project"):
        return
    reached = reach(environ)
    given.tenant = given.tenant or reached.tenant
    if given.has_project:
        given.project = given.project or reached.project


def reach_api(environ: Mapping[str, str]) -> tuple[str, str]:
    """URL and token of the API. Raises Failure."""
    reached = reach(environ)
    return reached.url, reached.token


def whose_token(environ: Mapping[str, str]) -> str:
    """In words, where the token of `reach` is from: what is kept may be in the way of what was meant."""
    if environ.get(_TOKEN):
        return _TOKEN
    name = _name(environ, Contexts.of(environ))
    return f"the stack in {Home.of(environ).path}" if name == DEV else f"the context {name}"


def _name(environ: Mapping[str, str], contexts: Contexts) -> str:
    # Whoever names a home means its stack: what is done to that must not be done to what is logged in to.
    named = DEV if environ.get(_HOME) else None
    return environ.get(_CONTEXT) or named or contexts.current or DEV


def _of_stack(environ: Mapping[str, str], token: str | None) -> Reached:
    home = Home.of(environ)
    stack = home.recall("stack.json")
    url = stack.get("api_url", "")
    if not url:
        raise Failure(
            f"no stack of `runr dev` in {home.path}: start one, go to its folder, "
            f"set RUNR_HOME or {_URL}, or `runr login`",
            EXIT_USAGE,
        )
    return Reached(_checked(url, "the URL of the stack"), token or stack["token"])


def _checked(url: str, name: str) -> str:
    if not is_http_url(url):
        raise Failure(f"{name} is {url}: it must begin with http:// or https:// and name a host", EXIT_USAGE)
    return url
