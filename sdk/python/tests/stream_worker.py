"""A worker that is connected to a scripted engine, for the tests of the worker stream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from runr_workflows import Workflows
from sdk.python.tests.engine import KEY
from sdk.python.tests.stream_engine import EngineStream, Manners, StreamEngine


@pytest.fixture
def wf() -> Workflows:
    """A registry of its own for each test."""
    return Workflows(signing_key=KEY)


@asynccontextmanager
async def connected(wf: Workflows, manners: Manners | None = None) -> AsyncIterator[EngineStream]:
    """The engine's end of the first stream. Leaves without a drain: what a test has left open is cut off."""
    async with StreamEngine(manners) as engine, wf.connection(engine.url, drain_seconds=0) as connection:
        yield await engine.accept()
        connection.cut_off()
        await connection.wait()
