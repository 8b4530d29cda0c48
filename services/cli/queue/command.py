"""`runr queue consume`: what is said on the command line stands before the environment."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Mapping
from typing import cast

from services.cli.failure import Failure
from services.cli.reach import place, reach, with_context
from services.core.runtime.service import EXIT_USAGE, ServiceModule, run_service

_OPTIONS = {
    "stream": "RUNR_QUEUE_STREAM",
    "group": "RUNR_QUEUE_GROUP",
    "consumer": "RUNR_QUEUE_CONSUMER",
    "dead_stream": "RUNR_QUEUE_DEAD_STREAM",
    "in_flight": "RUNR_QUEUE_IN_FLIGHT",
    "max_deliveries": "RUNR_QUEUE_MAX_DELIVERIES",
    "claim_after": "RUNR_QUEUE_CLAIM_AFTER",
    "project": "RUNR_PROJECT",
    "tenant": "RUNR_TENANT",
}
# Its health port is asked for, not assumed: several consumers may be on a machine, beside the services.
_ANY_PORT = "127.0.0.1:0"


def consume(environ: Mapping[str, str], given: argparse.Namespace) -> int:
    """Runs until a signal; the exit code."""
    environ = with_context(environ, getattr(given, "context", None))
    if not environ.get("RUNR_QUEUE_URL"):
        place(environ, given)
    said = {variable: getattr(given, option) for option, variable in _OPTIONS.items()}
    settings = {**environ, **{variable: value for variable, value in said.items() if value}}
    settings.setdefault("RUNR_HEALTH_ADDR", _ANY_PORT)
    if not settings.get("RUNR_QUEUE_URL"):
        reached = reach(environ)
        settings["RUNR_API_URL"], settings["RUNR_TOKEN"] = reached.url, reached.token
    try:
        app = importlib.import_module("services.cli.queue.app")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "redis":
            raise
        raise Failure(
            "the client of Redis is not installed: install the engine with its extra redis,"
            " in its checkout pip install ./proto '.[redis]'",
            EXIT_USAGE,
        ) from error
    return run_service({"queue": cast(ServiceModule, app)}, settings)
