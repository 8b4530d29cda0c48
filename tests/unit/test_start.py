"""What a service loads before it serves: a start is CPU time, and it is paid when everything starts at once."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from services.cli.serve import SERVICES
from services.core.runtime.python_child import python_environ

# Of the gateway's web framework, the SDK of traces that are off, the text of metrics that nobody has asked for yet, and
# what only the command line needs.
NOT_NEEDED = {
    "opentelemetry.sdk",
    "prometheus_client",
    "psutil",
    "services.cli.dev",
    "services.cli.demo",
    "services.cli.children",
}
ONLY_THE_GATEWAYS = {"aiohttp"}

LOAD = """
import importlib, os, sys
import services.cli.main
importlib.import_module(f"services.{sys.argv[1]}.app")
print(len(os.listdir("/proc/self/task")) if sys.platform == "linux" else 1)
print(*sorted(name for name, module in sys.modules.items() if module is not None))
"""


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_loads_what_it_needs_and_starts_no_thread_before_it_runs(service: str) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", LOAD, service],
        env=python_environ(os.environ),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    threads, loaded = done.stdout.splitlines()
    assert threads == "1"  # a fork after it would lose the others
    modules = set(loaded.split())
    assert f"services.{service}.app" in modules
    assert not modules & NOT_NEEDED
    assert bool(modules & ONLY_THE_GATEWAYS) is (service == "gateway")
