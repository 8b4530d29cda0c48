"""`runr serve`: one service in this process, or all four."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import cast

from services.core.runtime.service import ServiceModule, run_service

SERVICES = ("ingest", "scheduler", "executor", "gateway")

MANIFOLD = "executor"
"""The service that may have several processes under one parent."""

MOST_PROCESSES = 64


def serve(service: str, environ: Mapping[str, str], *, processes: int = 1) -> int:
    """Runs until a signal; `all` puts the four services into one process. Several `processes` are executors."""
    if processes > 1:
        from services.cli.processes import serve_processes

        return serve_processes(processes, environ)
    names = SERVICES if service == "all" else (service,)
    # Imported by name, so that a process loads only what it serves.
    modules = {name: cast(ServiceModule, importlib.import_module(f"services.{name}.app")) for name in names}
    return run_service(modules, environ)
