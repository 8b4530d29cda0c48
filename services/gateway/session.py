"""Sessions in browsers: the cookie that carries one, and what keeps other web pages from using it (engine section 10).

A browser sends the cookie with whatever any page asks for. So a write that comes with it must also show a token which
only pages of this site can read, and is refused where the browser itself says that another site has sent it: by
`Sec-Fetch-Site`, or, where it sends none (an old one, or one without https), by `Origin`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from dataclasses import dataclass

from aiohttp import web

from services.core.domain.errors import PermissionDenied
from services.gateway.mcp.origin import Origin, is_loopback, origin_of

CSRF_HEADER = "X-CSRF-Token"

_SESSION = "runr_session"
_CSRF = "runr_csrf"
# A browser takes a cookie of this name from this very host alone, over https.
_HOST = "__Host-"
_SAFE = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True, slots=True, repr=False)
class SessionChange:
    """What becomes of the browser's session: it has this secret, until then (unix milliseconds); None: it is over."""

    secret: str | None
    expires_ms: int = 0


@dataclass(frozen=True, slots=True)
class Cookies:
    """How cookies are named and marked. Not `secure`: there is no https, as on a developer's machine. `site` is where
    browsers see the API, if that was said: what is in front of the gateway may call it by another `Host`.
    """

    secure: bool = True
    site: Origin | None = None

    @property
    def session_name(self) -> str:
        """The cookie that a session is in."""
        return self._name(_SESSION)

    def secret_of(self, request: web.Request) -> str | None:
        """The secret of the session that a request comes with. Raises PermissionDenied for a write without the token,
        or from another site.
        """
        secret = request.cookies.get(self._name(_SESSION))
        if not secret:
            return None
        if request.method not in _SAFE:
            refuse_other_sites(request)
            shown = request.headers.get(CSRF_HEADER, "").encode(errors="replace")
            if not hmac.compare_digest(shown, csrf_token(secret).encode()):
                raise PermissionDenied(
                    f"a write with a cookie needs the header {CSRF_HEADER}, with what the cookie"
                    f" {self._name(_CSRF)} holds",
                    reason="CSRF_TOKEN",
                )
        return secret

    def put(self, response: web.StreamResponse, change: SessionChange) -> None:
        """Set the cookies of a session, or remove them."""
        secret = change.secret or ""
        age_s = max(0, change.expires_ms // 1_000 - int(time.time())) if secret else 0
        for name, value, hidden in ((_SESSION, secret, True), (_CSRF, csrf_token(secret) if secret else "", False)):
            response.set_cookie(
                self._name(name),
                value,
                max_age=age_s,
                path="/",
                secure=self.secure,
                httponly=hidden,
                samesite="Strict",
            )

    def is_site(self, origin: Origin, host: str) -> bool:
        """Whether a page of this origin is of the site whose `Host` a request has named."""
        scheme, name, _ = origin
        if origin == self.site:
            return True
        # Without https anybody on the way may have written the page.
        is_kept = scheme == "https" or not self.secure or is_loopback(name)
        return is_kept and origin == origin_of(f"{scheme}://{host}")

    def _name(self, name: str) -> str:
        return f"{_HOST}{name}" if self.secure else name


COOKIES = web.AppKey("runr_cookies", Cookies)


def csrf_token(secret: str) -> str:
    """What a page shows with its writes: it follows from the session's secret, and says nothing about it."""
    digest = hashlib.sha256(b"runr csrf token\0" + secret.encode(errors="replace")).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def refuse_other_sites(request: web.Request) -> None:
    """Raises PermissionDenied where the browser says that a page of another site has sent the request."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is None:
        origins = [origin_of(header) for header in request.headers.getall("Origin", ())]
        cookies = request.app[COOKIES]
        own = all(origin is not None and cookies.is_site(origin, request.host) for origin in origins)
    else:
        own = site in ("same-origin", "none")
    if not own:
        raise PermissionDenied("a page of another site may not ask for this", reason="OTHER_SITE")
