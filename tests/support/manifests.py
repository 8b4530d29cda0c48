"""The files in `deploy/`, read as what they start: which command, with which environment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from services.cli.configuration_page import declared
from services.cli.main import parser
from services.core.runtime.config import load, variables
from services.core.runtime.settings import DatabaseSettings, LogSettings, ProcessSettings, TelemetrySettings
from tests.support.pages import ROOT

DEPLOY = ROOT / "deploy"
FORCED_AFTER_GRACE_S = 15.0
"""How long after RUNR_GRACE a process has ended itself, at the latest."""

SECRETS: Mapping[str, str] = {
    "DATABASE_URL": "postgresql://runr:secret@db:5432/runr",
    "NATS_URL": "tls://nats:4222",
    "RUNR_ENCRYPTION_KEY": "00" * 32,
    "RUNR_BOOTSTRAP_TOKEN": "a-token-of-24-characters",
}
"""Values such as an operator gives them; the manifests have none of them."""

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INTERPOLATED = re.compile(r"\$\{(?P<name>\w+)(?::?(?P<kind>[-?])(?P<rest>[^}]*))?\}")


def documents(path: Path) -> list[Any]:
    """The YAML documents of a file."""
    return yaml_documents(path.read_text(encoding="utf-8"))


def yaml_documents(text: str) -> list[Any]:
    """The YAML documents of a text."""
    return [each for each in yaml.load_all(text, _LOADER) if each is not None]


def kustomized(folder: Path) -> list[Any]:
    """The objects that a kustomization collects, from below it and its components, without its patches."""
    (kustomization,) = documents(folder / "kustomization.yaml")
    found: list[Any] = []
    for name in [*kustomization.get("resources", []), *kustomization.get("components", [])]:
        path = (folder / name).resolve()
        found += kustomized(path) if path.is_dir() else documents(path)
    return found


def of_kind(objects: Sequence[Any], kind: str) -> dict[str, Any]:
    """Objects of one kind by their names."""
    return {each["metadata"]["name"]: each for each in objects if each["kind"] == kind}


def compose() -> Any:
    """The compose file with an operator's secrets in place and nothing else set."""
    (file,) = documents(DEPLOY / "compose.yaml")
    return _interpolated(file)


def _interpolated(node: Any) -> Any:
    """As Compose does it: after the YAML was read, so that what is filled in stays text."""
    if isinstance(node, dict):
        return {name: _interpolated(each) for name, each in node.items()}
    if isinstance(node, list):
        return [_interpolated(each) for each in node]
    return _INTERPOLATED.sub(_filled_in, node) if isinstance(node, str) else node


def _filled_in(match: re.Match[str]) -> str:
    return SECRETS[match["name"]] if match["kind"] == "?" else match["rest"] or ""


def environment_file(path: Path) -> dict[str, str]:
    """An EnvironmentFile of systemd."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    return {name: value for name, _, value in pairs}


def check_start(arguments: Sequence[str], environ: Mapping[str, str]) -> float:
    """Takes the command line and environment as the program does; how long its drain may last (RUNR_GRACE).

    Raises what the program refuses; AssertionError for a variable that nothing reads, or that this service does not.
    """
    given = parser().parse_args(arguments)
    known = {*declared(), *variables(DatabaseSettings)}
    assert set(environ) <= known, set(environ) - known
    if given.command == "migrate":
        load(DatabaseSettings, environ)
        assert set(environ) == set(variables(DatabaseSettings))
        return 0.0
    assert given.command == "serve"
    settings = import_module(f"services.{given.service}.app").Settings
    load(settings, environ)
    load(LogSettings, environ)
    load(TelemetrySettings, environ)
    unneeded = (SECRETS.keys() & environ.keys()) - set(variables(settings))
    assert not unneeded, f"{given.service} is given secrets that it does not read: {unneeded}"
    return load(ProcessSettings, environ).grace_s


def values(node: object) -> Iterator[object]:
    """All values that are no mapping or list, at any depth."""
    if isinstance(node, Mapping):
        for each in node.values():
            yield from values(each)
    elif isinstance(node, list):
        for each in node:
            yield from values(each)
    else:
        yield node
