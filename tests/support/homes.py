"""Throw-away homes for embedded servers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from services.embedded.home import Home, temporary_folder


@contextmanager
def temporary_home(prefix: str) -> Iterator[Home]:
    """A home in the temp folder, gone afterwards."""
    with temporary_folder(prefix) as folder:
        yield Home(folder)
