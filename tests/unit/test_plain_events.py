"""What is read in one go is what the whole reader reads, and nothing that is wrong is taken."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.domain import function_op
from services.core.domain.errors import InvalidInput
from services.core.domain.event import EventLimits, NewEvent, parse_events_body, validate_event
from services.core.domain.function_answer import parse_op
from services.core.domain.op import EventToSend, FunctionFault, Op, SendEvent
from services.core.domain.plain_events import plain_event, plain_events

LIMITS = EventLimits(events=5, event_bytes=120)


@dataclass(frozen=True)
class OpLimits:
    """Of an op."""

    output_bytes: int = 1_000
    event_bytes: int = 120
    step_id_bytes: int = 200


blanks = st.sampled_from(["", " ", "\n", "\t ", " \r\n "])
texts = st.text(max_size=6) | st.sampled_from(["\0", "\ud800", "é", '"', "\\"])
scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | texts
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3))
names = st.sampled_from(["a", "order.created", "runr/x", "bad name", "", "x" * 200, "x" * 201, "a\n"]) | texts
ids = st.sampled_from(["i", "x" * 255, "x" * 256, "é" * 127, "é" * 128, "", "a\0"]) | scalars
times = st.sampled_from([0, -1, 2**53 - 1, 2**53, 1.0, True]) | scalars
events = st.fixed_dictionaries(
    {},
    optional={
        "name": names | scalars,
        "data": st.dictionaries(texts, values, max_size=3) | values,
        "id": ids,
        "ts": times,
        "odd": scalars,
    },
)


@st.composite
def spelled(draw: st.DrawFn, value: Any) -> str:
    """A JSON text of a value, with blanks, with escapes or without, with members in any order, sometimes twice."""
    between = draw(blanks)
    if isinstance(value, dict):
        members = draw(st.permutations(list(value.items())))
        if members and draw(st.integers(0, 9)) == 0:
            members = [*members, members[0]]
        inner = f"{between},{between}".join(
            f"{json.dumps(key)}{between}:{between}{draw(spelled(each))}" for key, each in members
        )
        return f"{{{between}{inner}{between}}}"
    if isinstance(value, list):
        inner = f"{between},{between}".join(draw(spelled(each)) for each in value)
        return f"[{between}{inner}{between}]"
    return json.dumps(value, ensure_ascii=draw(st.booleans()))


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    several = draw(st.lists(events | scalars, max_size=6))
    whole = draw(st.sampled_from([several, {"events": several}, {"events": several, "x": 1}, *several[:1]]) | values)
    text = draw(blanks) + draw(spelled(whole)) + draw(blanks) + draw(st.sampled_from(["", "", "", "x", "]", "\ufeff"]))
    return text.encode(errors="surrogatepass")


def whole(body: bytes, limits: EventLimits = LIMITS) -> list[NewEvent] | None:
    try:
        return parse_events_body(body, limits)
    except InvalidInput:
        return None


def read_as_op(text: bytes) -> Op | str:
    """The op, or why it is none."""
    try:
        return parse_op(text, limits=OpLimits())
    except FunctionFault as fault:
        return str(fault)


@given(bodies())
def test_a_body_is_read_as_the_whole_reader_reads_it_or_left_to_it(body: bytes) -> None:
    found = plain_events(body, LIMITS)
    assert found is None or found == whole(body)


@given(st.lists(events | scalars, max_size=4) | values, st.data())
def test_the_events_of_an_op_are_read_as_the_whole_rule_reads_them(several: Any, data: st.DataObject) -> None:
    op = {"op": "send_event", "id": "s", "name": "s", "events": several}
    text = data.draw(spelled(op)).encode(errors="surrogatepass")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(function_op, "plain_list", lambda *_: None)
        wanted = read_as_op(text)
    assert read_as_op(text) == wanted


def test_plain_events_of_an_op_are_not_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    def walked(*_: object) -> None:
        raise AssertionError("walked")

    monkeypatch.setattr(function_op, "_events", walked)
    op = read_as_op(
        b'{"op":"send_event","id":"s","name":"s","events":[{"name":"a"},{"name":"b","data": {"n": 1.0},"ts":5}]}'
    )
    assert isinstance(op, SendEvent)
    assert op.events == (EventToSend(name="a"), EventToSend(name="b", data='{"n": 1.0}', ts=5))


@given(
    st.lists(st.tuples(st.text("ab", min_size=1, max_size=3), st.dictionaries(texts, values, max_size=2)), max_size=6)
)
def test_a_plain_body_is_recognized(given_events: list[tuple[str, dict[str, Any]]]) -> None:
    body = json.dumps([{"name": name, "data": data} for name, data in given_events]).encode()
    limits = EventLimits(events=5)
    wanted = whole(body, limits)
    if wanted is not None and b"\\ud800" not in body:  # which msgspec does not take
        assert plain_events(body, limits) == wanted


@given(names, st.dictionaries(texts, values, max_size=3) | values, st.none() | ids, st.none() | times)
def test_separate_fields_are_read_as_the_whole_rule_reads_them(name: Any, data: Any, id: Any, ts: Any) -> None:
    if not isinstance(id, str | None) or not isinstance(ts, int | None):
        return
    text = json.dumps(data)
    found = plain_event(name, text, id=id, ts=ts, limits=LIMITS)
    try:
        wanted = validate_event(name=name, data=text, id=id, ts=ts, limits=LIMITS)
    except InvalidInput:
        wanted = None
    assert found is None or found == wanted
    # The whole rule measures what the text says, this one the text with its escapes.
    if wanted is not None and (id is None or id.isascii()) and len(name) + len(text) <= LIMITS.event_bytes:
        assert found == wanted


@pytest.mark.parametrize(
    "body",
    [
        b'[{"name":"a","data":' + b"[" * 100_000,
        b'{"name":"a","data":' + b'{"a":' * 127 + b"{}" + b"}" * 127 + b"}",
        b'{"name":"a","data":' + b'{"a":' * 129 + b"{}" + b"}" * 129 + b"}",
        b'{"name":"a","data":{"n":1e400}}',
        b'{"name":"a","data":{"n":NaN}}',
        b'{"name":"a","data":{"a":1,"a":2}}',
        b'{"name":"a","name":"b"}',
        b'{"name":"a","data":{"s":"\xff"}}',
        b'\xef\xbb\xbf{"name":"a"}',
        b'{"name":"a","data":{"n":' + b"1" * 5_000 + b"}}",
        b"",
        b"[]",
        b"null",
    ],
)
def test_what_is_odd_is_left_to_the_whole_reader(body: bytes) -> None:
    assert plain_events(body, EventLimits()) is None


def test_the_text_of_data_is_kept_as_it_came() -> None:
    body = b' [ {"data" : { "b":1.0, "a": "\\u0000" } , "name":"a"}, {"name":"b"} ] '
    (first, second) = plain_events(body, EventLimits()) or []
    assert (first.data, second.data) == ('{ "b":1.0, "a": "\\u0000" }', "{}")
