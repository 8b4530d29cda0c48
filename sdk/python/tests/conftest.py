"""A registry with a fixed key and a fixed clock, and an engine that drives it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from runr_workflows import Workflows
from sdk.python.tests.engine import KEY, NOW, FakeEngine


@pytest.fixture
def wf() -> Iterator[Workflows]:
    """A registry that holds KEY and lives at NOW."""
    registry = Workflows(signing_key=KEY, clock=lambda: NOW)
    yield registry
    registry.close()


@pytest.fixture
def engine(wf: Workflows) -> FakeEngine:
    """An engine with 3 retries and no events."""
    return FakeEngine(wf.handle_request)
