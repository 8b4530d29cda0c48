"""Throw-away homes for embedded servers."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from services.embedded.home import Home


@contextmanager
def temporary_home(prefix: str) -> Iterator[Home]:
    """A home in the temp folder, gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix=f"runr-{prefix}-"))
    # mkdtemp is private, and a Postgres started by root is another user.
    folder.chmod(0o711)
    try:
        yield Home(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
