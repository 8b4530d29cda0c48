"""The quick way to read the most usual ops says what the thorough one says, or nothing."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from services.core.domain.function_answer import parse_op
from services.core.domain.function_op import read_op
from services.core.domain.json_fault import JsonError
from services.core.domain.json_text import read_object
from services.core.domain.op import FunctionFault, Op, RunCompleted, Sleep, StepCompleted
from services.core.domain.plain_op import read_plain
from services.core.runtime.settings import WorkflowLimits

LIMITS = WorkflowLimits()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
WORDS = st.text(min_size=1, max_size=12)
OPS = st.builds(
    lambda step_id, name, more, order: _text(step_id, name, more, order),
    WORDS,
    WORDS,
    st.fixed_dictionaries(
        {"output": JSON},
        optional={
            "input": JSON,
            "duration_ms": st.integers(-1, 10**16) | st.floats(0, 9),
            "max_attempts": st.integers(0, 23),
            "extra": JSON,
        },
    ),
    st.randoms(use_true_random=False) | st.none(),
)


def _text(step_id: str, name: str, more: dict[str, Any], order: random.Random | None) -> str:
    ranks = ["max_attempts", "duration_ms", "input", "output", "extra"]
    members = [("op", "step_completed"), ("id", step_id), ("name", name)]
    members += [(key, more[key]) for key in ranks if key in more]
    if order is not None and order.random() < 0.3:
        order.shuffle(members)
    separators = (", ", ": ") if order is not None and order.random() < 0.2 else (",", ":")
    return json.dumps(dict(members), separators=separators, ensure_ascii=order is None or order.random() < 0.5)


def quick(text: str, **limits: int) -> Op | None:
    known = {"output_bytes": LIMITS.output_bytes, "step_id_bytes": LIMITS.step_id_bytes, **limits}
    return read_plain(text, 0, "}", **known)


def thorough(text: str) -> object:
    try:
        return read_op(read_object(text), LIMITS)
    except (JsonError, FunctionFault) as fault:
        return str(fault)


PLAIN = '{"op":"step_completed","id":"a","name":"a","max_attempts":3,"duration_ms":12,"input":[1],"output":{"b":[1.0]}}'


SLEEP = '{"op":"sleep","id":"nap:2","name":"nap","duration":"1h30m"}'
END = '{"op":"run_completed","output":{"b":[1.0]}}'
DURATIONS = (
    st.text('0123456789hdmsPTY. -"\\', max_size=6) | st.integers(-1, 10**18) | st.floats() | st.booleans() | st.none()
)


def test_the_usual_forms_of_a_sleep_and_of_an_end_are_read() -> None:
    assert quick(SLEEP) == Sleep(id="nap:2", name="nap", for_ms=5_400_000)
    assert quick(SLEEP.replace('"1h30m"', "90")) == Sleep(id="nap:2", name="nap", for_ms=90_000)
    assert quick(END) == RunCompleted(output='{"b":[1.0]}')


@given(DURATIONS, WORDS, st.booleans())
def test_a_sleep_read_quickly_is_what_the_thorough_way_reads(duration: object, step_id: str, until: bool) -> None:
    members = {
        "op": "sleep",
        "id": step_id,
        "name": step_id,
        "duration": duration,
        **({"until": None} if until else {}),
    }
    text = json.dumps(members, separators=(",", ":"))
    found = quick(text)
    assert found is None or found == thorough(text)


@given(JSON, st.sampled_from(["", " ", "}", ',"output":1']))
def test_an_end_read_quickly_is_what_the_thorough_way_reads(output: object, behind: str) -> None:
    text = '{"op":"run_completed","output":' + json.dumps(output, separators=(",", ":")) + behind + "}"
    found = quick(text)
    assert found is None or found == thorough(text)


def test_the_usual_form_is_read_with_every_text_as_it_came() -> None:
    assert quick(PLAIN) == StepCompleted(
        id="a", name="a", max_attempts=3, duration_ms=12, input="[1]", output='{"b":[1.0]}'
    )


@given(OPS)
@example('{"op":"step_completed","id":"a","name":"a","output":1,"output":2}')
@example('{"op":"step_completed","id":"a","id":"b","name":"a","output":1}')
@example('{"op":"step_completed","id":"a","name":"a","output":{"x":1,"x":2}}')
@example('{"op":"step_completed","id":"a","name":"a","output":NaN}')
@example('{"op":"step_completed","id":"a","name":"a","output":1e999}')
@example('{"op":"step_completed","id":"a","name":"a","output":01}')
@example('{"op":"step_completed","id":"a","name":"a","duration_ms":007,"output":1}')
@example('{"op":"step_completed","id":"a","name":"a","output":1}}')
@example('{"op":"step_completed","id":"a","name":"a","output":1} ')
@example('{"op":"step_completed","id":"a","name":"a","output":"\\ud800"}')
@example('{"op":"step_completed","id":"a","name":"a","output":' + "[" * 200 + "]" * 200 + "}")
def test_what_the_quick_way_reads_is_what_the_thorough_way_reads(text: str) -> None:
    found = quick(text)
    if found is not None:
        assert found == thorough(text)


@given(
    st.sampled_from([PLAIN, SLEEP, END]),
    st.integers(0, len(PLAIN)),
    st.characters() | st.sampled_from('{}[],:"\\ 0'),
    st.booleans(),
)
def test_one_wrong_character_is_never_read_as_something_else(
    plain: str, at: int, character: str, replaces: bool
) -> None:
    text = plain[:at] + character + plain[at + replaces :]
    found = quick(text)
    if found is not None:
        assert found == thorough(text)


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        (PLAIN, {"output_bytes": 10}),
        (PLAIN, {"step_id_bytes": 0}),
        (SLEEP, {"step_id_bytes": 0}),
        (END, {"output_bytes": 10}),
    ],
)
def test_what_is_over_a_limit_is_left_to_the_thorough_way(text: str, limits: dict[str, int]) -> None:
    assert quick(text, **limits) is None


def test_every_form_of_an_op_is_still_read() -> None:
    spaced = json.dumps(json.loads(PLAIN), indent=1)
    assert quick(spaced) is None
    read = parse_op(spaced.encode(), limits=LIMITS)
    assert isinstance(read, StepCompleted)
    assert read.id == "a"
