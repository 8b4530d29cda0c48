"""One episode: a plan carried out on a fresh engine, driven to its end, and judged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from tests.model.ledger import Ledger
from tests.model.machine import Machine
from tests.model.operate import Operator
from tests.model.plan import Plan
from tests.model.settle import drive_to_the_end
from tests.model.verdict import judge

_GUARD_S = 180.0


async def play(url: str, plan: Plan) -> list[str]:
    """Everything that went wrong in this episode."""
    ledger = Ledger()
    with _faults_logged() as logged:
        async with asyncio.timeout(_GUARD_S), Machine(url, plan) as machine:
            operator = Operator(machine, ledger)
            for group in plan.groups:
                done = await asyncio.gather(*map(operator.carry_out, group), return_exceptions=True)
                raised = [each for each in zip(group, done, strict=True) if isinstance(each[1], Exception)]
                ledger.faults += [f"{op} raised {error!r}" for op, error in raised]
            await drive_to_the_end(machine, ledger)
            found = await judge(machine, ledger)
    return [*found, *logged]


@contextmanager
def _faults_logged() -> Iterator[list[str]]:
    """What the engine logs as errors meanwhile."""
    found: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(f"logged: {self.format(record)}")

    listener = Listener(logging.ERROR)
    logger = logging.getLogger("services")
    logger.addHandler(listener)
    try:
        yield found
    finally:
        logger.removeHandler(listener)
