"""`python -m services.scheduler`: this service alone."""

from __future__ import annotations

import os
import sys

from services.core.runtime.service import run_service
from services.scheduler import app

if __name__ == "__main__":
    sys.exit(run_service({"scheduler": app}, os.environ))
