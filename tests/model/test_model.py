"""The real engine under random operations, crashes and bad hints: episodes drawn from seeds.

A failing episode prints its seed, the smallest plan found that still fails, and how to play it again:

    RUNR_MODEL_SEED=7 RUNR_MODEL_ONLY=3,8,12 python -m pytest tests/model -k again

`make soak` plays other seeds for RUNR_SOAK_SECONDS, from RUNR_SOAK_SEED or from the time of day on.
"""

from __future__ import annotations

import os
import time
from typing import get_args

import pytest

from tests.model.episode import play
from tests.model.plan import Plan, Transport, draw_plan
from tests.model.shrink import shrink
from tests.support.engine import postgres_url

__all__ = ["postgres_url"]

SEEDS = range(1, 11)


@pytest.mark.parametrize("seed", SEEDS)
async def test_an_episode_keeps_all_invariants(seed: int, postgres_url: str) -> None:
    await hold(postgres_url, draw_plan(seed))


def test_the_seeds_cover_every_transport() -> None:
    busiest = {draw_plan(seed).transports[0] for seed in SEEDS}
    assert busiest == set(get_args(Transport))


@pytest.mark.skipif("RUNR_SOAK_SECONDS" not in os.environ, reason="make soak")
async def test_soak(postgres_url: str) -> None:
    until = time.monotonic() + float(os.environ["RUNR_SOAK_SECONDS"])
    first = seed = int(os.environ.get("RUNR_SOAK_SEED") or time.time())
    while time.monotonic() < until:
        await hold(postgres_url, draw_plan(seed))
        seed += 1
    print(f"{seed - first} episodes, seeds {first} to {seed - 1}")


@pytest.mark.skipif("RUNR_MODEL_SEED" not in os.environ, reason="plays an episode again")
async def test_again(postgres_url: str) -> None:
    plan = draw_plan(int(os.environ["RUNR_MODEL_SEED"]))
    if only := os.environ.get("RUNR_MODEL_ONLY"):
        plan = plan.only(set(map(int, only.split(","))))
    faults = await play(postgres_url, plan)
    assert not faults, "\n".join([str(plan), *faults])


async def hold(url: str, plan: Plan) -> None:
    """Play it; if it fails, make it small and fail with that."""
    faults = await play(url, plan)
    if not faults:
        return

    async def once_more(some: Plan) -> list[str]:
        return await play(url, some)

    small, found, kept = await shrink(plan, faults, once_more)
    again = (
        f"RUNR_MODEL_SEED={plan.seed} RUNR_MODEL_ONLY={','.join(map(str, kept))} python -m pytest tests/model -k again"
    )
    pytest.fail("\n".join([str(small), *found[:20], "the whole plan had:", *faults[:20], again]), pytrace=False)
