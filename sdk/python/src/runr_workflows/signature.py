"""Signatures of engine requests: `v1 = hex(HMAC-SHA256(key, "<t>.<request>"))` (protocol section 6)."""

from __future__ import annotations

import hmac
import re
from collections.abc import Sequence

from .refusal import NoSigningKey, SignatureRejected

__all__ = ["NoSigningKey", "SignatureRejected", "sign", "verify"]

TOLERANCE_S = 300
"""How far the signed time may be from now, both ways, inclusive."""

_TIME = re.compile(r"[0-9]{1,15}", re.ASCII)
_USUAL = re.compile(r"t=([0-9]{1,15}),v1=([0-9a-f]{64})", re.ASCII)
"""A signature by one key."""
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)


def sign(key: str, t: int | str, request: str) -> str:
    """The `v1` value for one key. `t` is the text of the header's unix time."""
    return hmac.digest(key_bytes(key), f"{t}.{request}".encode(), "sha256").hex()


def verify(*, header: str | None, envelope: str | None, keys: Sequence[str], request: str, now: float) -> None:
    """Returns if the request is the engine's.

    `header` and `envelope` are the two places of the signature, None where absent; `now` is unix seconds.
    Raises NoSigningKey if no non-empty key is given, SignatureRejected for everything else.
    """
    held = [key for key in keys if key]
    if not held:
        raise NoSigningKey("no signing key is configured (RUNR_WORKFLOW_SIGNING_KEY)")
    if header is not None and envelope is not None and header != envelope:
        raise SignatureRejected("the signatures of header and envelope differ")
    text = header if header is not None else envelope
    if text is None:
        raise SignatureRejected("the request is not signed")
    t, digests = _parse(text)
    if abs(now - int(t)) > TOLERANCE_S:
        raise SignatureRejected("the signature is stale or from the future")
    try:
        signed = f"{t}.{request}".encode()
        expected = [hmac.digest(key_bytes(key), signed, "sha256").hex() for key in held]
    except UnicodeEncodeError:
        raise SignatureRejected("the request is not valid Unicode") from None
    matches = [hmac.compare_digest(digest, own) for digest in digests for own in expected]
    if not any(matches):
        raise SignatureRejected("the signature does not match")


def _parse(text: str) -> tuple[str, list[str]]:
    """The time as written and the well-formed `v1` values; blanks are allowed only after a comma."""
    usual = _USUAL.fullmatch(text)
    if usual is not None:
        return usual[1], [usual[2]]
    times: list[str] = []
    digests: list[str] = []
    for index, item in enumerate(text.split(",")):
        scheme, separator, value = (item.lstrip(" ") if index else item).partition("=")
        if not separator:
            raise SignatureRejected("the signature is malformed")
        if scheme == "t":
            times.append(value)
        elif scheme == "v1" and _DIGEST.fullmatch(value):
            digests.append(value)
    if len(times) != 1 or not _TIME.fullmatch(times[0]) or not digests:
        raise SignatureRejected("the signature is malformed")
    return times[0], digests


def key_bytes(key: str) -> bytes:
    """The bytes of a signing key as it is configured."""
    # An environment variable that is not UTF-8 reaches Python as surrogate escapes; this gives its bytes back.
    return key.encode("utf-8", "surrogateescape")
