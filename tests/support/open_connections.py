"""A test that leaves a connection to Postgres open fails, instead of whichever test runs when it is collected."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Generator
from functools import wraps
from weakref import WeakSet

import asyncpg
import pytest

_made: WeakSet[asyncpg.Connection] = WeakSet()


def pytest_configure() -> None:
    """Know of every connection."""
    asyncpg.Connection.__init__ = _noted(asyncpg.Connection.__init__)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """Once the test's event loop is closed, so is every connection that belonged to it."""
    yield
    left = [each for each in _made if each._loop.is_closed() and not each.is_closed()]
    if not left:
        return
    names = ", ".join(sorted({each.get_settings().application_name for each in left}))
    _made.difference_update(left)
    left.clear()
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        gc.collect()
    pytest.fail(f"left open: connections of {names}", pytrace=False)


def _noted(make: Callable[..., None]) -> Callable[..., None]:
    @wraps(make)
    def note(connection: asyncpg.Connection, *args: object, **options: object) -> None:
        make(connection, *args, **options)
        _made.add(connection)

    return note
