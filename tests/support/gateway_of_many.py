"""A gateway whose name of ingest leads to several replicas: on one machine they differ by their ports, which a name
cannot tell. `RUNR_TEST_INGESTS` lists them.
"""

from __future__ import annotations

import os
import sys
from functools import partial

from services.core.runtime import parse
from services.core.runtime.parse import Address
from services.core.runtime.service import run_service
from services.gateway import app
from services.gateway.backends import Backends

REPLICAS = "RUNR_TEST_INGESTS"


async def resolve(_: Address) -> set[Address]:
    """The replicas."""
    return {parse.address(each) for each in os.environ[REPLICAS].split(",")}


if __name__ == "__main__":
    setattr(app, "Backends", partial(Backends, resolve=resolve))  # noqa: B010 - the seam is a name of that module
    sys.exit(run_service({"gateway": app}, os.environ))
