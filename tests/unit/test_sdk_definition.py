"""The Python SDK judges definitions and the fields of step calls as the engine does: it refuses nothing else, and takes
nothing that the engine would refuse.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runr_workflows import StepArgumentError
from runr_workflows.asked import refuse_bad_fields
from runr_workflows.calls import StepCall, invoke_call, send_call, wait_call
from runr_workflows.event_names import listener_fault, sender_fault
from runr_workflows.known_options import NOT_YET as SDK_NOT_YET

from services.core.domain.event import listener_name_fault, sender_name_fault
from services.core.domain.function_op import read_op
from services.core.domain.json_text import Reader
from services.core.domain.op import BadStep
from services.core.domain.workflow import NOT_YET
from tests.vectors.definition_rows import engine_faults, sdk_faults

NAMES = st.sampled_from(
    [
        "a",
        "order.created",
        "",
        "a b",
        "a" * 200,
        "a" * 201,
        "runr/x",
        "runr/run.failed",
        "runr/",
        "\u00e9",
        "a\n",
        "q/b",
    ]
) | st.text(max_size=4)
TEXTS = st.sampled_from(["event.data.a", "async.id == 1", "event.id ||", "", "data.a", "id", "x", "'\\q'", "a" * 1001])
ODD: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers(-2, 10_002) | st.sampled_from([1.5, "5", "1s", []])
)
LENGTHS = st.sampled_from(["1s", "5m", "0s", "366d", "367d", "1 d", "PT1H", "999ms", 1, 0, -1, 0.5])
CRONS = st.sampled_from(["* * * * *", "0 9 * * 1-5", "61 * * * *", "0 0 31 2 *", "@daily", "", "* * * *"])
ZONES = st.sampled_from(["UTC", "Europe/Istanbul", "", "a b", "../UTC", 5, None])
"""None that only looks like a zone: of those the engine alone knows."""


def members(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with some of these fields, now and then an odd value, now and then an unknown field."""
    known = st.fixed_dictionaries({}, optional={name: value | ODD for name, value in fields.items()})
    return st.tuples(known, st.sampled_from([{}, {}, {}, {"odd": 1}])).map(lambda two: {**two[0], **two[1]})


SCHEDULES = st.tuples(members(cron=CRONS, catch_up=st.just("all")), ZONES).map(
    lambda two: {**two[0], "timezone": two[1]}
)
TRIGGERS = members(event=NAMES, **{"if": TEXTS}) | SCHEDULES
LIMITS = members(limit=st.integers(-1, 10_001), key=TEXTS)
DEFINITIONS = members(
    description=st.sampled_from(["", "x" * 1001, "a\0"]),
    triggers=st.lists(TRIGGERS | members(queue=NAMES), max_size=3),
    retries=st.integers(-1, 21),
    timeout=LENGTHS,
    concurrency=LIMITS | st.lists(LIMITS, max_size=3),
    idempotency=TEXTS,
    cancel_on=st.lists(members(event=NAMES, match=TEXTS, timeout=LENGTHS, **{"if": TEXTS}), max_size=2),
    checkpoint=members(max_steps=st.integers(-1, 1001), max_time=LENGTHS),
    priority=st.just(1),
)


class Limits:
    """Those of an engine, in bytes."""

    output_bytes = 1 << 20
    event_bytes = 262_144
    step_id_bytes = 200


@settings(max_examples=300)
@given(st.sampled_from(["w", "a b", "app", "", "x" * 101]), DEFINITIONS)
def test_a_definition_has_one_verdict_at_the_same_places(name: str, options: dict[str, Any]) -> None:
    definition = {"name": name, **options}
    assert sorted(set(sdk_faults(definition))) == sorted(set(engine_faults(definition)))


def test_what_is_not_supported_yet_is_the_same() -> None:
    assert frozenset(SDK_NOT_YET) == NOT_YET


@given(NAMES | ODD)
def test_a_name_of_an_event_has_one_verdict_in_the_same_words(name: Any) -> None:
    for told, known in (
        (listener_fault(name), listener_name_fault(name)),
        (sender_fault(name), sender_name_fault(name)),
    ):
        assert (told is None) is (known is None)
        if isinstance(name, str):
            assert told == known


def refused_by_engine(call: StepCall) -> bool:
    """Whether the engine memoizes the op of this call as a step that failed."""
    op = json.dumps({"op": call.op, "id": "s", "name": "s", **call.fields})
    reader = Reader.of(op, max_depth=131)
    return isinstance(read_op(reader.read(reader.raw_members), Limits()), BadStep)


def refused_by_sdk(call: StepCall) -> bool:
    """Whether the call raises in place of asking the engine."""
    try:
        refuse_bad_fields(call)
    except StepArgumentError:
        return True
    return False


@given(
    NAMES.filter(bool),
    st.none() | TEXTS.filter(bool),
    st.none() | TEXTS.filter(bool),
    st.sampled_from([None, 0, "run", "1d"]),
)
def test_a_wait_has_one_verdict(event: str, match: str | None, if_: str | None, lookback: Any) -> None:
    call = wait_call("s", event, match, if_, None, lookback)
    assert refused_by_sdk(call) is refused_by_engine(call)


@given(st.sampled_from(["w", "app", "sync", "a b", "", "x" * 100, "x" * 101, "-a"]) | st.text(max_size=3))
def test_an_invoke_has_one_verdict(workflow: str) -> None:
    call = invoke_call("s", workflow, {"a": 1}, None)
    assert refused_by_sdk(call) is refused_by_engine(call)


EVENTS = st.fixed_dictionaries(
    {"name": NAMES},
    optional={
        "data": ODD | st.just({"a": [1]}),
        "id": ODD | st.sampled_from(["", "x" * 255, "x" * 256, "\u00e9" * 128, "a\0", "\ud800"]),
        "ts": ODD
        | st.sampled_from([2**53 - 1, 2**53, datetime(2026, 1, 1, tzinfo=UTC), datetime(1969, 1, 1, tzinfo=UTC)]),
    },
)


@settings(max_examples=300)
@given(st.lists(EVENTS, min_size=1, max_size=3))
def test_events_have_one_verdict(events: list[Any]) -> None:
    call = send_call("s", events)
    assert refused_by_sdk(call) is refused_by_engine(call)


def test_a_member_that_no_event_has_is_refused_by_the_sdk_alone() -> None:
    odd: Any = {"name": "a", "payload": {"n": 1}}
    call = send_call("s", odd)
    assert refused_by_sdk(call)
    assert not refused_by_engine(call)


@pytest.mark.parametrize("name", ["a", "runr/run.completed"])
def test_the_drawn_calls_are_not_all_refused(name: str) -> None:
    assert not refused_by_sdk(wait_call("s", name, "data.a", "async.id == 1", "1d", 0))
