"""Requests before they are sent: signed as the engine signs, or wrong in the one way that a rule is about."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from services.cli.conformance.wire import shown
from services.core.domain.envelope import PROTOCOL, seal
from services.core.domain.signature import signature_header
from services.executor.lean_http.client import ID_FIELD

Change = Callable[[str], str | None]
"""What becomes of a signature in one of its two places; None: it is left out there."""

Encode = Callable[[str, str | None], bytes]
"""The body for a request and the signature inside."""


@dataclass(frozen=True, slots=True)
class Post:
    """One request as it is sent. `about` says in words what is special about it."""

    about: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def request_id(self) -> str:
        """What it carries as X-RunR-Request-Id."""
        return self.headers.get(ID_FIELD, "")

    def shown(self) -> str:
        """For a report."""
        return f"{self.about}: {shown(self.body)}"


def same(signature: str) -> str | None:
    """The signature as it is."""
    return signature


def absent(signature: str) -> str | None:
    """No signature in this place."""
    return None


def plain_envelope(request: str, signature: str | None) -> bytes:
    """The body as the engine writes it; a signature that is left out is null."""
    return seal(request, signature) if signature is not None else json_envelope(request, signature)


def json_envelope(request: str, signature: str | None) -> bytes:
    """The body as another writer of JSON writes it: blanks, another order, each character that is not ASCII escaped."""
    members = {"request": request, "runr_workflow": PROTOCOL, "signature": signature}
    return json.dumps(members, indent=1).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Signer:
    """Makes posts that are signed with `keys` at `unix_s`; the fields are what a rule changes about them."""

    keys: Sequence[str]
    unix_s: int
    in_header: Change = same
    in_envelope: Change = same
    encode: Encode = plain_envelope
    headers: Mapping[str, str] = field(default_factory=dict)

    def post(self, about: str, request: str, *, kind: Literal["introspect", "execute"] = "introspect") -> Post:
        """The post of a request."""
        signature = signature_header(self.keys, self.unix_s, request)
        header = self.in_header(signature)
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "User-Agent": "RunR-Workflows/conformance",
            "X-RunR-Protocol": PROTOCOL,
            "X-RunR-Request": kind,
            ID_FIELD: secrets.token_hex(16),
            **({} if header is None else {"X-RunR-Signature": header}),
            **self.headers,
        }
        return Post(about, headers, self.encode(request, self.in_envelope(signature)))
