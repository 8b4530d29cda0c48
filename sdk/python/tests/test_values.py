"""Values go through JSON, in the first execution and in every later one (protocol section 7)."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runr_workflows import AsyncStep, Context, SerializationError, Step, Workflows
from runr_workflows.values import encode
from sdk.python.tests.engine import FakeEngine


class Point(NamedTuple):
    x: int
    y: int


class Color(enum.StrEnum):
    RED = "red"


@dataclass
class Order:
    total: int


def cyclic() -> list[Any]:
    """A list that contains itself."""
    value: list[Any] = []
    value.append(value)
    return value


def deep(levels: int) -> Any:
    """A list of `levels` lists."""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ((1, 2), [1, 2]),
        (Point(1, 2), [1, 2]),
        ({"user": {"name": "x", "tags": ["a", None, True, 1.5]}, "count": 2},) * 2,
        ({}, {}),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05+00:00"),
        (date(2026, 1, 2), "2026-01-02"),
        (Color.RED, "red"),
        ({1: "a"}, {"1": "a"}),
        (10**1000 + 1, 10**1000 + 1),
        ("\ud800 \0 😀 ödeme", "\ud800 \0 😀 ödeme"),
        (None, None),
    ],
)
def test_a_step_returns_what_json_made_of_its_value(
    wf: Workflows, engine: FakeEngine, value: object, stored: object
) -> None:
    seen: list[object] = []

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> object:
        seen.append(step.run("a", lambda: value))
        return value

    run = engine.run("w")

    assert seen == [stored]
    assert run.output == stored


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (b"\xde\xad\xbe\xef", "bytes"),
        ({"items": [1, {"price": Decimal("1.5")}]}, "['items'][1]['price'] is of the type decimal.Decimal"),
        ([float("nan")], "[0] is nan"),
        ({"x": float("-inf")}, "['x'] is -inf"),
        (Order(1), "Order"),
        ({1, 2}, "set"),
        (UUID(int=0), "uuid.UUID"),
        ({(1, 2): 3}, "key of the type tuple"),
        (cyclic(), "contains itself"),
        (deep(100_000), "nested too deeply"),
        pytest.param(10**5000, "digits", id="more-digits-than-python-shows"),
    ],
)
@pytest.mark.parametrize("in_step", [True, False])
def test_what_json_cannot_hold_fails_for_good_and_names_the_place(
    wf: Workflows, engine: FakeEngine, value: object, named: str, in_step: bool
) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> object:
        return step.run("a", lambda: value) if in_step else value

    op = engine.execute("w")

    assert op["op"] == ("step_failed" if in_step else "run_failed")
    assert op["non_retriable"] is True
    assert op["error"]["name"] == "SerializationError"
    assert named in op["error"]["message"]
    assert ("step 'a'" if in_step else "the workflow's return value") in op["error"]["message"]


@pytest.mark.parametrize(
    "call",
    [lambda s: s.invoke("c", "sub", data={"x": {1}}), lambda s: s.send_event("e", {"name": "n", "data": {"x": {1}}})],
)
def test_data_of_invoke_and_send_event_is_checked_where_it_is_given(
    wf: Workflows, engine: FakeEngine, call: Callable[[Step], object]
) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> str:
        try:
            call(step)
        except SerializationError as error:
            return str(error)
        return "accepted"

    assert "is of the type set" in engine.execute("w")["output"]


def test_a_workflow_made_of_an_async_function_in_disguise_is_told_so(wf: Workflows, engine: FakeEngine) -> None:
    async def body() -> int:
        return 1

    @wf.workflow("step")
    def in_step(ctx: Context, step: Step) -> object:
        return step.run("a", body)

    @wf.workflow("return")
    def returned(ctx: Context, step: Step) -> object:
        return body()

    @wf.workflow("async")
    async def forgotten(ctx: Context, step: AsyncStep) -> object:
        return step.run("a", body)

    assert "async def" in engine.execute("step")["error"]["message"]
    assert "async def" in engine.execute("return")["error"]["message"]
    assert "without awaiting its step call 'a'" in engine.execute("async")["error"]["message"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(json_values)
def test_json_values_round_trip(value: object) -> None:
    text = encode(value)

    assert json.loads(text) == value
    assert text.encode().decode() == text
