"""Signatures of protocol v1: the engine signs, a function verifies (protocol section 6).

`verify` and `verify_envelope` are the rule as every SDK keeps it. The engine itself only signs; it holds the rule so
that one set of vectors judges all sides.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

WINDOW_S = 300
"""A signature is good while |now - t| is at most this."""

_DIGITS = re.compile(r"[0-9]+")
_V1 = re.compile(r"[0-9a-f]{64}")
_MAX_T_DIGITS = 15


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a function answers: 200 to go on, else the status and the reason."""

    status: int
    reason: str = ""

    @property
    def accepted(self) -> bool:
        """Whether the request may be served."""
        return self.status == 200


ACCEPTED = Verdict(200)


def sign(key: str, t: int | str, request: str) -> str:
    """The `v1` of a request: hex of HMAC-SHA256 over `<t>.<request>`. The key is used as the text given, in UTF-8."""
    made = _with(key).copy()
    made.update(_utf8(f"{t}.{request}"))
    return made.hexdigest()


def signature_header(keys: Sequence[str], t: int, request: str) -> str:
    """The header value `t=…,v1=…`, with one `v1` per key that is not empty. `t` is unix seconds."""
    signatures = [f"v1={sign(key, t, request)}" for key in keys if key]
    if not signatures:
        raise ValueError("there is no key to sign with")
    return ",".join([f"t={t}", *signatures])


def verify(header: str | None, keys: Sequence[str], request: str, now: float) -> Verdict:
    """Judge a signature over the exact request string. `now` is unix seconds with their fraction."""
    held = [key for key in keys if key]
    if not held:
        return Verdict(500, "no signing key is configured")
    if header is None:
        return Verdict(401, "the signature is missing")
    parsed = _parse(header)
    if parsed is None:
        return Verdict(401, "the signature is malformed")
    t, signatures = parsed
    if len(t) > _MAX_T_DIGITS or abs(now - int(t)) > WINDOW_S:
        return Verdict(401, f"the signature is more than {WINDOW_S} seconds away from now")
    accepted = False
    for expected in [sign(key, t, request) for key in held]:
        for given in signatures:
            accepted |= hmac.compare_digest(expected, given)
    return ACCEPTED if accepted else Verdict(401, "the signature is of another key or another request")


def verify_envelope(body: object, header: str | None, keys: Sequence[str], now: float) -> Verdict:
    """Judge a whole body, already decoded from JSON, and the signature header if the runtime passed it on."""
    if not isinstance(body, Mapping) or body.get("runr_workflow") != "v1":
        return Verdict(400, "the body is not an envelope of protocol v1")
    request, inner = body.get("request"), body.get("signature")
    if not isinstance(request, str) or not isinstance(inner, str | None):
        return Verdict(400, "the envelope's request and signature must be strings")
    if not any(keys):
        return Verdict(500, "no signing key is configured")
    if header is not None and inner is not None and not hmac.compare_digest(_utf8(header), _utf8(inner)):
        return Verdict(401, "the signatures of header and envelope differ")
    return verify(header if header is not None else inner, keys, request, now)


@lru_cache(maxsize=1024)
def _with(key: str) -> hmac.HMAC:
    """What is the same in all signatures of a key, to be copied: half of what one of a short text costs."""
    return hmac.new(_utf8(key), digestmod="sha256")


def _parse(header: str) -> tuple[str, list[str]] | None:
    """`t` and the well-formed `v1`s of a header; None if it is malformed. Blanks may follow a comma, nothing else."""
    times: list[str] = []
    signatures: list[str] = []
    has_v1 = False
    for index, part in enumerate(header.split(",")):
        name, equals, value = (part.lstrip(" ") if index else part).partition("=")
        if not equals:
            return None
        if name == "t":
            times.append(value)
        elif name == "v1":
            has_v1 = True
            if _V1.fullmatch(value):
                signatures.append(value)
    if len(times) != 1 or not has_v1 or not _DIGITS.fullmatch(times[0]):
        return None
    return times[0], signatures


def _utf8(text: str) -> bytes:
    # A lone surrogate reaches this only from a sender that is not ours: it must end as 401, not as a crash.
    return text.encode(errors="surrogatepass")
