"""Why a request is answered with something else than 200 (protocol section 2).

RequestRefused
├── BadRequest          400
├── SignatureRejected   401
├── BodyTooLarge        413
└── NoSigningKey        500
"""

from __future__ import annotations


class RequestRefused(Exception):
    """A request that is not executed. The message is sent to the caller: it names no key and shows no stack."""

    status = 400


class BadRequest(RequestRefused):
    """Not a v1 envelope, a request type that is not known, or a workflow that is not served here."""


class SignatureRejected(RequestRefused):
    """The signature is missing, malformed, stale, or by no key that is held."""

    status = 401


class BodyTooLarge(RequestRefused):
    """The body is over the limit of 64 MiB."""

    status = 413


class NoSigningKey(RequestRefused):
    """No signing key is configured, so nothing can be verified."""

    status = 500
