"""The concurrency limits of workflows as the engine's statements read them (`rt.gate_rule`)."""

from __future__ import annotations

from collections.abc import Mapping

import asyncpg

from services.core.domain.gate_rule import GateRule
from services.core.store.queries import queries


async def put_gate_rules(connection: asyncpg.Connection, tenant: int, rules: Mapping[int, GateRule]) -> None:
    """Make these the rules of workflows, by their ids, in the transaction that changes their definitions."""
    numbers = {workflow: [number for _, number in rule.limits] for workflow, rule in rules.items()}
    await connection.execute(
        queries("gates")["put_rules"],
        tenant,
        list(rules),
        [rule.keys for rule in rules.values()],
        [limits[0] if limits else None for limits in numbers.values()],
        [limits[1] if len(limits) > 1 else None for limits in numbers.values()],
    )
