"""A service may open as many sockets as the machine lets it."""

from __future__ import annotations

import subprocess
import sys

_CHILD = """
import resource
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(64, hard), hard))
from services.core.runtime.open_files import allow_open_files
assert allow_open_files() == hard
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
"""


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    subprocess.run([sys.executable, "-c", _CHILD], check=True)
