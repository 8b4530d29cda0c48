"""Events beyond the vectors: shapes of bodies, every fault with its path, sizes at the limit."""

from __future__ import annotations

import json
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.domain.errors import InvalidInput, Malformed, TooLarge
from services.core.domain.event import (
    EventLimits,
    NewEvent,
    listener_name_fault,
    parse_events_body,
    sender_name_fault,
    validate_event,
)


def paths(body: bytes | str, limits: EventLimits | None = None) -> list[str]:
    """The paths of the faults of a body that is refused."""
    with pytest.raises(InvalidInput) as refused:
        parse_events_body(body.encode() if isinstance(body, str) else body, limits or EventLimits())
    return [fault.path for fault in refused.value.errors]


@given(st.text(string.ascii_letters + string.digits + "._:/-", min_size=1, max_size=200))
def test_names_of_senders(name: str) -> None:
    fault = sender_name_fault(name)

    assert (fault is not None) == name.startswith("runr/")


@given(st.text(min_size=1, max_size=20))
def test_names_hold_nothing_else(name: str) -> None:
    ascii_only = all(character in string.ascii_letters + string.digits + "._:/-" for character in name)

    assert (sender_name_fault(name) is None) == (ascii_only and not name.startswith("runr/"))


@pytest.mark.parametrize("name", ["runr/run.completed", "runr/run.failed", "runr/run.cancelled", "runr/run.timed_out"])
def test_the_ends_of_runs_may_be_listened_to_and_not_sent(name: str) -> None:
    assert listener_name_fault(name) is None
    assert sender_name_fault(name) is not None


@pytest.mark.parametrize(
    "name", ["runr/cron", "runr/", "runr/run.", "runr/run.started", "runr/run.completed ", "a b", "", None, 5]
)
def test_nothing_else_of_the_platform_is_heard(name: object) -> None:
    assert listener_name_fault(name) is not None


def test_the_three_shapes_of_a_body() -> None:
    event = '{"name":"a","data":{"n" : 1.0},"id":"x","ts":5}'
    wanted = NewEvent(name="a", data='{"n" : 1.0}', id="x", ts=5)

    assert parse_events_body(event.encode()) == [wanted]
    assert parse_events_body(f" [{event} ,\n{event}]".encode()) == [wanted, wanted]
    assert parse_events_body(f'{{"events" : [{event}]}}'.encode()) == [wanted]


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("{}", ["name"]),
        ("[]", ["events"]),
        ('{"events":[]}', ["events"]),
        ('{"events":{}}', ["events"]),
        ('{"events":null}', ["events"]),
        ("5", [""]),
        ("null", [""]),
        ('"x"', [""]),
        ('{"name":"a","events":[{"name":"a"}]}', ["name"]),
        ('{"events":[{"name":"a"}],"source":"x"}', ["source"]),
        ('[{"name":"a"},[],7,{"name":"b b"}]', ["events[1]", "events[2]", "events[3].name"]),
        ('[{"name":"a","data":null,"id":null,"ts":null}]', ["events[0].data", "events[0].id", "events[0].ts"]),
        ('{"name":"runr/x","dat a":1,"id":"","ts":-1,"data":[]}', ['["dat a"]', "name", "data", "id", "ts"]),
        ('{"name":"a","id":"x\\u0000"}', ["id"]),
        ('{"name":"a","id":"\\ud800"}', ["id"]),
        ('{"name":"a","id":"' + "é" * 128 + '"}', ["id"]),
        ('{"name":"a","ts":9007199254740992}', ["ts"]),
        ('{"name":"a","ts":1.0}', ["ts"]),
        ('{"name":"a","ts":false}', ["ts"]),
        ('{"events":[{"name":"a","data":{"x":[1e400]}}]}', ["events[0].data.x[0]"]),
        ('[{"name":"a","data":{"x":1,"x":2}}]', ["events[0].data.x"]),
        ('{"name":"a","data":' + '{"a":' * 128 + "{}" + "}" * 128 + "}", ["data"]),
        ("[" + ",".join(['{"name":"a"}'] * 101) + "]", ["events"]),
    ],
)
def test_every_fault_has_its_path(body: str, wanted: list[str]) -> None:
    assert paths(body) == wanted


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"name":"a"', b"\xff", b"\xef\xbb\xbf{}", b'{"name":"a"} {}', b"name=a", b"[NaN]"]
)
def test_what_is_not_json_is_malformed(body: bytes) -> None:
    with pytest.raises(Malformed):
        parse_events_body(body)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("[" + "{}," * 1_001 + "no json", "at most 100 events a request, these are over 1000"),
        ("[" + "{}," * 999 + "{}]", "at most 100 events a request, these are 1000"),
        ('{"events":[' + "1," * 1_001 + "no json", "at most 100 events a request, these are over 1000"),
        ("{" + ",".join(f'"f{n}":1' for n in range(101)) + ", no json", "over 100"),
        ('{"name":"a","data":{"a":[' + "{}," * 1_400_000 + "no json", "one value has more than"),
        ('[{"name":"a","x":[' + "1," * 2_200_000 + "no json", "one value has more than"),
        ("[[" + "1," * 2_200_000 + "no json", "one value has more than"),
        ('{"x":1,"events":[{"name":"a","id":"' + "x" * 4_200_000, "one value has more than"),
    ],
)
def test_what_is_too_much_is_not_read_to_its_end(body: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as refused:
        parse_events_body(body.encode())
    assert not isinstance(refused.value, Malformed)
    assert len(refused.value.errors) == 1


def test_a_text_may_be_longer_than_what_it_says() -> None:
    padded = '{"a":' + " " * 3_000_000 + "1}"
    (event, _) = parse_events_body(f'[{{"name":"a","data":{padded}}},{{"name":"b"}}]'.encode())
    assert event.data == padded


def test_what_is_json_is_not_malformed() -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_events_body(b'{"name":"a","data":{"n":1e400}}')

    assert not isinstance(refused.value, Malformed)


@pytest.mark.parametrize("data", ['{"x":"%s"}', '{ "x" :\n"%s" }', '{"x":"%s","\\u0079":1}', '{"x":"%s\\u4e2d\\/"}'])
def test_the_limit_counts_name_and_compact_data_exactly(data: str) -> None:
    limits = EventLimits(event_bytes=1000)
    compact = json.dumps(json.loads(data % ""), ensure_ascii=False, separators=(",", ":"))
    room = 1000 - len("name") - len(compact.encode())

    (taken,) = parse_events_body(f'{{"name":"name","data":{data % ("a" * room)}}}'.encode(), limits)
    assert taken.data == data % ("a" * room)
    with pytest.raises(TooLarge) as refused:
        parse_events_body(f'{{"name":"name","data":{data % ("a" * (room + 1))}}}'.encode(), limits)
    assert "1001 bytes" in refused.value.message


def test_size_with_another_fault_is_invalid_and_names_both() -> None:
    body = json.dumps([{"name": "a", "data": {"x": "a" * 100}}, {"name": "b b"}])

    with pytest.raises(InvalidInput) as refused:
        parse_events_body(body.encode(), EventLimits(event_bytes=50))

    assert not isinstance(refused.value, TooLarge)
    assert [fault.path for fault in refused.value.errors] == ["events[0].data", "events[1].name"]


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text(max_size=5), json_values, max_size=3), min_size=1, max_size=5), st.booleans())
def test_data_is_stored_as_it_arrived(datas: list[Any], ascii_only: bool) -> None:
    body = json.dumps([{"data": data, "name": "a"} for data in datas], ensure_ascii=ascii_only, indent=1)

    events = parse_events_body(body.encode())

    assert [json.loads(event.data) for event in events] == datas
    assert all(event.data in body for event in events)


@given(json_values)
def test_any_json_is_taken_or_refused(value: Any) -> None:
    try:
        events = parse_events_body(json.dumps(value).encode())
    except InvalidInput as refusal:
        events, faults = [], refusal.errors
    else:
        faults = ()

    assert bool(events) != bool(faults)


def test_events_as_separate_fields() -> None:
    assert validate_event(name="a", data='{"x": 1}', id="i", ts=0) == NewEvent(name="a", data='{"x": 1}', id="i", ts=0)
    assert validate_event(name="a") == NewEvent(name="a")


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"name": "runr/cron"}, "events[2].name"),
        ({"name": None}, "events[2].name"),
        ({"name": "a", "data": "[]"}, "events[2].data"),
        ({"name": "a", "data": '{"a":{"b":1e400}}'}, "events[2].data.a.b"),
        ({"name": "a", "data": '{"a":1,"a":1}'}, "events[2].data.a"),
        ({"name": "a", "data": ""}, "events[2].data"),
        ({"name": "a", "id": 7}, "events[2].id"),
        ({"name": "a", "ts": True}, "events[2].ts"),
    ],
)
def test_separate_fields_are_refused_with_their_path(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        validate_event(**fields, path="events[2]")

    assert [fault.path for fault in refused.value.errors] == [path]
