"""The choice of gRPC's I/O layer: made where gRPC offers it, and never against a choice that was made."""

from __future__ import annotations

import subprocess
import sys

import pytest

IMPORTS = ["services.core.rpc.server", "services.gateway.submit.lane", "runr_workflows.connect.connection"]


def imported(module: str, variable: str | None) -> tuple[str, str]:
    """What the variable is when this module and gRPC are imported, and what gRPC says about it."""
    opened = "grpc.insecure_channel('127.0.0.1:9').close()"
    code = f"import os, {module}, grpc; {opened}; print(os.environ['GRPC_EXPERIMENTS'])"
    environ = {} if variable is None else {"GRPC_EXPERIMENTS": variable}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip(), done.stderr


@pytest.mark.parametrize("module", IMPORTS)
def test_the_choice_is_made_before_grpc_is_imported_and_grpc_knows_it(module: str) -> None:
    chosen, said = imported(module, None)
    assert chosen == "-event_engine_client,-event_engine_listener"
    assert "experiment" not in said


def test_a_choice_that_was_made_stays() -> None:
    assert imported(IMPORTS[0], "event_engine_client")[0] == "event_engine_client"
