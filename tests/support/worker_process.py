"""`python -m tests.support.worker_process module:register`: a worker of its own, connected until it is told to stop."""

from __future__ import annotations

import os
import sys
from importlib import import_module

from runr_workflows import Workflows

from services.core.runtime.parent import on_parent_death
from tests.support.remote_bodies import BODIES_VARIABLE, RemoteBodies


def main() -> None:
    """Connect, as the environment says; end with the process of the test."""
    on_parent_death(os.environ, lambda: os._exit(1))
    module, _, register = sys.argv[1].partition(":")
    workflows = Workflows()
    getattr(import_module(module), register)(workflows, RemoteBodies(os.environ[BODIES_VARIABLE]))
    workflows.connect(max_concurrency=1_000)


if __name__ == "__main__":
    main()
