"""Entries of Redis streams as messages, and what lets them through: nothing of an entry is lost on the way."""

from __future__ import annotations

import asyncio
import base64
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cli.queue.address import group_of
from services.cli.queue.entry import BASE64_SUFFIX, Entry, fields_of, pairs_of
from services.cli.queue.gate import Gate
from services.core.domain.queue_message import queue_event

PAIRS = st.lists(st.tuples(st.binary(max_size=8), st.binary(max_size=8)), max_size=6)


@given(PAIRS)
def test_every_value_is_in_the_message_in_its_order(pairs: list[tuple[bytes, bytes]]) -> None:
    flat = [part for pair in pairs for part in pair]
    assert pairs_of(flat) == tuple(pairs)
    message = json.loads(Entry("1-0", pairs_of(flat)).message())
    assert message["id"] == "1-0"
    told = sorted(
        base64.b64decode(each) if name.endswith(BASE64_SUFFIX) else each.encode()
        for name, values in message["fields"].items()
        for each in ([values] if isinstance(values, str) else values)
    )
    assert told == sorted(value for _, value in pairs)


@given(PAIRS)
def test_every_message_is_one_that_the_bridge_can_take(pairs: list[tuple[bytes, bytes]]) -> None:
    queue_event("payments", json.dumps(fields_of(tuple(pairs))))


def test_a_name_that_comes_twice_has_all_its_values() -> None:
    pairs = ((b"a", b"1"), (b"b", b"\xff"), (b"a", b"2"), (b"\xc3\xa4", b"x"), (b"\xff", b"y"))
    assert fields_of(pairs) == {"a": ["1", "2"], "b_base64": "/w==", "ä": "x", "\\xff": "y"}


@pytest.mark.parametrize(
    ("url", "group"),
    [
        ("https://api.example.com/api/internal/workflows/queue/acme/shop/abcd", "runr:acme:shop"),
        ("https://api.example.com/api/internal/workflows/queue/central/shop/abcd/", "runr:central:shop"),
        ("https://proxy.example.com/shop", "runr"),
    ],
)
def test_each_project_has_a_group_of_its_own(url: str, group: str) -> None:
    assert group_of(url) == group


async def test_a_shut_gate_lets_one_try_and_all_when_it_succeeds() -> None:
    gate = Gate(random.Random(1), first_s=0.01, most_s=0.02)
    await gate.enter()
    assert gate.is_open
    gate.fail()
    entered: list[int] = []

    async def enter(number: int) -> None:
        await gate.enter()
        entered.append(number)

    tasks = [asyncio.create_task(enter(number)) for number in range(5)]
    await gate.passable()
    while not entered:
        await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(entered) == 1
    assert not gate.is_open
    gate.succeed()
    await asyncio.gather(*tasks)
    assert len(entered) == 5
    gate.close()


async def test_who_cannot_say_how_it_was_lets_another_try() -> None:
    gate = Gate(random.Random(1), first_s=0.01, most_s=0.02)
    gate.fail()
    await gate.enter()
    waiting = asyncio.create_task(gate.enter())
    await asyncio.sleep(0)
    assert not waiting.done()
    gate.abandon()
    await waiting
    gate.close()


async def test_pauses_double_and_those_who_fail_together_count_as_one() -> None:
    gate = Gate(random.Random(1), first_s=0.001, most_s=0.01)
    pauses = []
    for _ in range(6):
        await gate.enter()
        pauses.append(gate.fail())
        assert gate.fail() <= pauses[-1]
    bounds = [0.001, 0.002, 0.004, 0.008, 0.01, 0.01]
    assert all(bound / 2 <= pause <= bound for pause, bound in zip(pauses, bounds, strict=True))
    await gate.enter()
    assert gate.fail(at_least_s=0.009) >= 0.009
    gate.close()
