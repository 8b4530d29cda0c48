"""The tests that have just failed, each once more, alone: `python -m tests.support.once_more`.

Three workers on two cores, beside type checks and another language's tests, hold a test up for as long as they like. A
few that fail so and pass alone are told by name, and do not fail the whole; many, or one that fails again, do
(docs/decisions/0011-a-test-fails-twice.md).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")
MOST = 3


def once_more(last_failed: Path = LAST_FAILED) -> int:
    """The exit code: 0 when all that had failed has passed."""
    failed = list(json.loads(last_failed.read_text())) if last_failed.exists() else []
    if not 1 <= len(failed) <= MOST:
        return 1
    for name in failed:
        print(f"once more, alone: {name}", flush=True)
        if subprocess.run([sys.executable, "-m", "pytest", "-n", "0", name]).returncode != 0:
            return 1
    print("FAILED BESIDE OTHERS, PASSED ALONE (a fault of the test, or a race of the engine: look at it):")
    for name in failed:
        print(f"  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(once_more())
