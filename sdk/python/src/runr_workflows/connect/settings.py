"""The settings of `wf.connect()`: arguments first, then the environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from ..errors import SettingsError
from ..known_options import refuse_unknown
from ..shown import shown
from ..signing_key import KEY_VARIABLE
from .target import Pem, Target, target

PROJECT_VARIABLE = "RUNR_PROJECT"
TENANT_VARIABLE = "RUNR_TENANT"
_DEFAULT_PROJECT = "default"
_DEFAULT_TENANT = "default"


class ConnectOptions(TypedDict, total=False):
    """Options of `wf.connect()`, `wf.connect_async()` and `wf.connection()`."""

    project: str | None
    """Slug of the project; RUNR_PROJECT, else `default`."""
    tenant: str | None
    """Slug of the tenant; RUNR_TENANT, else `default`."""
    max_concurrency: int
    """Invocations that are executed at once; 100."""
    code_version: int
    """Rises with every deployment, so that an older worker cannot replace newer definitions; 0 when not known."""
    drain_seconds: float
    """How long steps that are executed may take when the worker is to leave; 30."""
    tls_ca: Pem | None
    """PEM, a path or bytes: the authority of the engine's certificate; RUNR_WORKER_TLS_CA, else the system's."""
    tls_cert: Pem | None
    """PEM: a certificate of this worker, where the engine asks for one; RUNR_WORKER_TLS_CERT."""
    tls_key: Pem | None
    """PEM: its key; RUNR_WORKER_TLS_KEY."""
    plaintext: bool | None
    """No TLS although the address is not loopback, because the network is trusted; RUNR_WORKER_PLAINTEXT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """What a worker is told. `keys` are the project's signing keys, the current one first."""

    target: Target
    tenant: str
    project: str
    keys: Sequence[str]
    max_concurrency: int
    code_version: int
    drain_s: float


def worker_settings(
    url: str | None, options: ConnectOptions, *, keys: Sequence[str], environ: Mapping[str, str]
) -> WorkerSettings:
    """The settings of a worker. Raises SettingsError for what is missing or wrong, and UnknownOptionError."""
    refuse_unknown(options, ConnectOptions.__annotations__)
    held = [key for key in keys if key]
    if not held:
        raise SettingsError(f"no signing key: set {KEY_VARIABLE}, or give Workflows(signing_key=…)")
    return WorkerSettings(
        target=target(
            url,
            ca=options.get("tls_ca"),
            certificate=options.get("tls_cert"),
            key=options.get("tls_key"),
            plaintext=options.get("plaintext"),
            environ=environ,
        ),
        tenant=_slug(
            "tenant", TENANT_VARIABLE, options.get("tenant") or environ.get(TENANT_VARIABLE) or _DEFAULT_TENANT
        ),
        project=_slug(
            "project", PROJECT_VARIABLE, options.get("project") or environ.get(PROJECT_VARIABLE) or _DEFAULT_PROJECT
        ),
        keys=held,
        max_concurrency=_whole("max_concurrency", options.get("max_concurrency", 100), 1, 100_000),
        code_version=_whole("code_version", options.get("code_version", 0), 0, 2**63 - 1),
        drain_s=_seconds("drain_seconds", options.get("drain_seconds", 30.0)),
    )


def _slug(name: str, variable: str, value: object) -> str:
    # Signed as lines: a line feed in one could pass for the next line.
    if not isinstance(value, str) or not value.isprintable() or len(value) > 100:
        raise SettingsError(f"{name} ({variable}): a slug like {_DEFAULT_PROJECT!r}, not {shown(value, 100)}")
    return value


def _whole(name: str, value: object, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise SettingsError(f"{name}: an integer from {least} to {most}, not {shown(value)}")
    return value


def _seconds(name: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 86_400:
        raise SettingsError(f"{name}: a number of seconds from 0 to 86400, not {shown(value)}")
    return float(value)
