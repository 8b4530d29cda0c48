"""`python -m services.ingest`: the same as `runr serve ingest`."""

from __future__ import annotations

import os
import sys

from services.core.runtime.service import run_service
from services.ingest import app

if __name__ == "__main__":
    sys.exit(run_service({"ingest": app}, os.environ))
