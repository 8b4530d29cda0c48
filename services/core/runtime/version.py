"""Which version of the engine runs."""

from __future__ import annotations

from functools import cache


@cache
def engine_version() -> str:
    """The version of the engine that is installed. Only who asks pays for looking it up, and only once."""
    from importlib.metadata import version

    return version("runr-engine")
