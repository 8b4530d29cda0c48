"""The import rules of the house (services/README.md): a row imports only lower rows, services never one another."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SERVICES = ("services.gateway", "services.ingest", "services.scheduler", "services.executor")
DOMAIN = "services.core.domain"
RUNTIME = "services.core.runtime"
CARRIERS = ("services.core.store", "services.core.bus", "services.core.rpc")
ENGINE = "services.core.engine"
CORE = (DOMAIN, RUNTIME, *CARRIERS, ENGINE)

ALLOWED: dict[str, tuple[str, ...]] = {
    DOMAIN: (),
    RUNTIME: (DOMAIN,),
    **{carrier: (DOMAIN, RUNTIME) for carrier in CARRIERS},
    # The engine knows store and bus, never how callers reach it.
    ENGINE: (DOMAIN, RUNTIME, "services.core.store", "services.core.bus"),
    **{service: CORE for service in SERVICES},
    "services.gateway": (DOMAIN, RUNTIME, "services.core.rpc"),
    "services.embedded": (RUNTIME,),
    "services.cli": (*CORE, *SERVICES, "services.embedded"),
}
# The domain gets time and random handed in, and does no I/O.
IMPURE = {"asyncio", "os", "pathlib", "random", "secrets", "socket", "subprocess", "time"}


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted((ROOT / "services").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room_of(module: str) -> str | None:
    return next((room for room in ALLOWED if module == room or module.startswith(f"{room}.")), None)


def may_use_protos(module: str) -> bool:
    # A worker's stream is made of its messages: to turn each into one of our own would cost more than its commit.
    rooms = ("services.core.rpc", "services.core.bus", "services.gateway", "services.executor.worker_stream")
    # An `app` is the place where servicers are registered.
    return module.startswith(rooms) or module.endswith(("_service", ".app"))


def faults(module: str, imported: str) -> Iterator[str]:
    room, target = room_of(module), room_of(imported)
    if room and target and target != room and target not in ALLOWED[room]:
        yield f"{module} imports {imported}: {room} may not import {target}"
    if (imported == "runr" or imported.startswith("runr.")) and not may_use_protos(module):
        yield f"{module} imports {imported}: generated code belongs to rpc, bus, *_service, app, gateway, worker_stream"
    top = imported.partition(".")[0]
    if room == DOMAIN and (top in IMPURE or top not in {*sys.stdlib_module_names, "msgspec", "services"}):
        yield f"{module} imports {imported}: the domain is pure"


def test_every_import_goes_downward() -> None:
    found = [fault for module, path in modules() for name in imports(path) for fault in faults(module, name)]
    assert not found, "\n".join(found)


def test_every_folder_of_services_has_a_row() -> None:
    assert [module for module, _ in modules() if room_of(module) is None] == ["services", "services.core"]


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("services.ingest.accept_event", "services.executor.lease_loop"),
        ("services.gateway.routes.runs", "services.core.store.runs"),
        ("services.core.store.runs", "services.core.bus.jetstream"),
        ("services.core.engine.apply", "services.core.rpc.status"),
        ("services.core.domain.run", "services.core.runtime.clock"),
        ("services.core.runtime.health", "services.embedded.home"),
        ("services.ingest.accept_event", "runr.workflows.v1.resources_pb2"),
        ("services.core.domain.retry", "random"),
        ("services.core.domain.retry", "asyncpg"),
    ],
)
def test_a_planted_bad_import_is_found(module: str, imported: str) -> None:
    assert list(faults(module, imported))
