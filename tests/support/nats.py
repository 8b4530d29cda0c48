"""A real NATS with JetStream for tests: one embedded server a session, a prefix of its own for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from services.embedded.stack import EmbeddedStack
from tests.support.homes import temporary_home


@pytest.fixture(scope="session")
def nats_stack() -> Iterator[EmbeddedStack]:
    """The session's NATS, with `stop`, `start` and `kill` for it."""
    with temporary_home("nats", in_memory=True) as home, EmbeddedStack(home, servers=["nats"]) as stack:
        yield stack


@pytest.fixture
def nats_url(nats_stack: EmbeddedStack) -> str:
    """The session's NATS; keep tests apart by `nats_prefix`."""
    return nats_stack.urls["nats"]


@pytest.fixture(scope="session")
def _prefixes() -> Iterator[str]:
    return (f"test{number}" for number in itertools.count(1))


@pytest.fixture
def nats_prefix(_prefixes: Iterator[str]) -> str:
    """A prefix for the streams and subjects of one test (`NatsSettings.prefix`)."""
    return next(_prefixes)
