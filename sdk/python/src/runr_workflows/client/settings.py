"""Where the API is, and how a client speaks to it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from ..duration import parse_duration
from ..errors import Duration, SettingsError
from ..shown import shown, shown_url

URL_VARIABLE = "RUNR_API_URL"
TOKEN_VARIABLE = "RUNR_TOKEN"  # noqa: S105  # the name of a variable

_HEADER_TEXT = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True, repr=False)
class ClientSettings:
    """The settings of a client. `root` is the path below which the API's `/api` is, mostly empty."""

    is_tls: bool
    host: str
    port: int
    root: str
    token: str
    tenant: str | None
    project: str
    timeout_s: float
    retries: int


def client_settings(
    *,
    url: str | None,
    token: str | None,
    project: str,
    tenant: str | None,
    timeout: Duration,
    retries: int,
    environ: Mapping[str, str] = os.environ,
) -> ClientSettings:
    """The settings; what is None comes from the environment. Raises SettingsError naming what is wrong or missing."""
    address = url if url is not None else environ.get(URL_VARIABLE, "")
    secret = token if token is not None else environ.get(TOKEN_VARIABLE, "")
    if not address:
        raise SettingsError(f"no address of the API: give url=…, or set {URL_VARIABLE}, like http://127.0.0.1:8080")
    if not secret:
        raise SettingsError(f"no token for the API: give token=…, or set {TOKEN_VARIABLE}")
    for name, text in (("token", secret), ("tenant", tenant)):
        if text is not None and not _HEADER_TEXT.fullmatch(text):
            raise SettingsError(f"{name}: it has blanks or characters that no header holds")
    parts = _parsed(address)
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        raise SettingsError(f"retries: an integer from 0, not {shown(retries)}")
    is_tls = parts.scheme == "https"
    return ClientSettings(
        is_tls=is_tls,
        host=parts.hostname or "",
        port=parts.port or (443 if is_tls else 80),
        root=parts.path.rstrip("/").removesuffix("/api").rstrip("/"),
        token=secret,
        tenant=tenant,
        project=project,
        timeout_s=_seconds(timeout),
        retries=retries,
    )


def _parsed(address: object) -> SplitResult:
    """The parts of the address, which has a scheme, a host and a port that can be read."""
    try:
        if not isinstance(address, str):
            raise ValueError
        parts = urlsplit(address)
        is_one = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one or parts.query or parts.username:
        raise SettingsError(
            f"url ({URL_VARIABLE}): {shown_url(address)} is no address of the API, like http://127.0.0.1:8080"
        )
    return parts


def _seconds(timeout: Duration) -> float:
    try:
        return parse_duration(timeout) / 1000
    except ValueError as error:
        raise SettingsError(f"timeout: {error}") from None
