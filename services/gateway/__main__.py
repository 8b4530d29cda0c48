"""`python -m services.gateway`: the gateway alone, configured by the environment."""

from __future__ import annotations

import os
import sys

from services.core.runtime.service import run_service
from services.gateway import app

if __name__ == "__main__":
    sys.exit(run_service({"gateway": app}, os.environ))
