"""What a queue's message becomes as an event, and the address of a sink (engine section 3, "Queue bridge")."""

from __future__ import annotations

import base64
import hmac
import json
import re
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.domain import queue_token as queue_tokens
from services.core.domain.errors import InvalidInput, Malformed, TooLarge
from services.core.domain.event import EventLimits
from services.core.domain.queue_message import (
    BASE64_FIELD,
    WRAPPERS,
    check_entry_id,
    entry_key,
    nats_stream,
    payload_fields,
    queue_event,
    queue_event_name,
    queue_stream_fault,
)
from services.core.domain.queue_token import queue_token, sink_url, token_fits
from services.core.runtime.parse import Address
from services.gateway.http_server import own_url

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


def data_of(fields: object) -> object:
    return json.loads(queue_event("orders", json.dumps(fields)).data)


def no_constant(name: str) -> object:
    raise ValueError(name)


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


def test_the_fields_of_a_message_are_the_data_of_its_event() -> None:
    event = queue_event("orders", b'{"order_id": "o-1", "big": 123456789012345678901234567890, "price": 1.0}')
    assert event.name == "queue/orders"
    assert event.data == '{"order_id": "o-1", "big": 123456789012345678901234567890, "price": 1.0}'
    assert (event.id, event.ts) == (None, None)


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_single_json_field_is_decoded(name: str) -> None:
    assert data_of({name: '{"order_id": "o-1"}'}) == {"order_id": "o-1"}
    assert data_of({name: {"order_id": "o-1"}}) == {"order_id": "o-1"}


def test_a_decoded_object_keeps_its_text() -> None:
    inner = '{"big": 123456789012345678901234567890, "price": 1.0, "odd": "\\u0000\\ud800"}'
    assert queue_event("orders", json.dumps({"payload": f" {inner}\n"})).data == inner


@pytest.mark.parametrize(
    ("text", "value"), [("[1, 2]", [1, 2]), ("42", 42), ("true", True), ("null", None), ('"words"', "words")]
)
def test_a_decoded_value_that_is_no_object_stays_under_its_name(text: str, value: object) -> None:
    assert data_of({"body": text}) == {"body": value}


@pytest.mark.parametrize(
    "text",
    ["", "hello", "{", "{'a': 1}", "\ufeff{}", '{"a": 1, "a": 2}', '{"a": 1e400}', '{"a": NaN}', nested(129), "{}{}"],
)
def test_a_field_that_is_no_json_stays_the_text_that_it_is(text: str) -> None:
    assert data_of({"message": text}) == {"message": text}


@pytest.mark.parametrize(
    "fields",
    [
        {"data": '{"a": 1}', "type": "order"},
        {"data": '{"a": 1}', "payload": '{"b": 2}'},
        {"content": '{"a": 1}'},
        {"Data": '{"a": 1}'},
        {},
    ],
)
def test_any_other_message_stays_as_it_is(fields: dict[str, str]) -> None:
    assert data_of(fields) == fields


def test_the_deepest_list_that_an_event_can_hold_is_decoded_and_a_deeper_one_is_text() -> None:
    assert queue_event("s", json.dumps({"data": nested(127)})).data == f'{{"data":{nested(127)}}}'
    assert queue_event("s", json.dumps({"data": nested(128)})).data == f'{{"data":"{nested(128)}"}}'


@given(VALUES)
def test_no_message_is_lost_however_it_is_packed(value: object) -> None:
    """What the producer has put in is in the data, under its name or unpacked."""
    wanted = value if isinstance(value, dict) else {"payload": value}
    assert data_of({"payload": json.dumps(value)}) == wanted
    assert json.loads(queue_event("s", payload_fields(json.dumps(value).encode())).data) == (
        value if isinstance(value, dict) else {"data": value}
    )


@given(st.binary())
def test_no_payload_is_lost_whatever_its_bytes_are(payload: bytes) -> None:
    data = json.loads(queue_event("s", payload_fields(payload)).data)
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        assert data == {BASE64_FIELD: base64.b64encode(payload).decode()}
    else:
        try:
            inner = json.loads(text, parse_constant=no_constant)
        except ValueError:
            assert data == {"data": text}
        else:
            assert data == (inner if isinstance(inner, dict) else {"data": inner})


@pytest.mark.parametrize(
    ("fields", "kind", "words"),
    [
        ("", Malformed, "fields"),
        ("{", Malformed, "fields"),
        ('{"a": 1, "a": 2}', Malformed, 'the key "a" comes twice'),
        (b"\xff", Malformed, "is not UTF-8"),
        ("[1]", InvalidInput, "fields: must be a JSON object, not a list"),
        ('"text"', InvalidInput, "fields: must be a JSON object, not a string"),
        (f'{{"a": {nested(128)}}}', InvalidInput, "nested deeper than 128"),
    ],
)
def test_fields_that_are_none_are_refused(fields: str | bytes, kind: type[InvalidInput], words: str) -> None:
    with pytest.raises(kind, match=re.escape(words)) as caught:
        queue_event("orders", fields)
    assert isinstance(caught.value, Malformed) is (kind is Malformed)


def test_the_size_of_an_event_bounds_a_message_by_what_it_becomes() -> None:
    limits = EventLimits(event_bytes=len("queue/orders") + len('{"n":1}'))
    assert queue_event("orders", '{"n": 1}', limits).data == '{"n": 1}'
    assert queue_event("orders", json.dumps({"data": ' {"n": 1} '}), limits).data == '{"n": 1}'
    with pytest.raises(TooLarge, match="name and data have 20 bytes, at most 19 are allowed"):
        queue_event("orders", '{"n": 12}', limits)


def test_where_a_stream_lives_is_not_in_the_name_of_its_event() -> None:
    assert queue_event_name("nats:ORDERS") == queue_event_name("ORDERS") == "queue/ORDERS"
    assert (nats_stream("nats:ORDERS"), nats_stream("ORDERS")) == ("ORDERS", None)


@pytest.mark.parametrize("stream", ["orders", "a", "shop:orders.v2-x_y", "nats:ORDERS", "nats:a-b_1", "x" * 194])
def test_streams_that_a_project_may_have(stream: str) -> None:
    assert queue_stream_fault(stream) is None
    assert queue_event(stream, "{}").name == queue_event_name(stream)


@pytest.mark.parametrize(
    "stream", ["a b", "a/b", "ä", "x" * 195, "nats:", "nats:a.b", "nats:a:b", "nats:*", "nats:>", "a\0", "a\n"]
)
def test_streams_that_it_may_not_have(stream: str) -> None:
    assert queue_stream_fault(stream) is not None


def test_keys_of_messages_differ_by_project_stream_and_entry() -> None:
    keys = [entry_key(*parts) for parts in [(1, "a", "1"), (11, "a", "1"), (1, "b", "1"), (1, "a", "2")]]
    assert len(set(keys)) == 4
    # The same entry of a stream here and of its namesake there are two messages.
    assert entry_key(1, "nats:a", "1") != entry_key(1, "a", "1")
    longest = entry_key(2**31 - 1, "x" * 194, "e" * 255)
    assert len(longest) <= 600


@pytest.mark.parametrize("entry", ["1-0", "1700000000000-0", "ä", "x" * 255])
def test_ids_of_entries(entry: str) -> None:
    check_entry_id(entry)


@pytest.mark.parametrize("entry", ["", "a\0", "\ud800", "x" * 256, "ä" * 128])
def test_what_cannot_be_the_id_of_an_entry(entry: str) -> None:
    with pytest.raises(InvalidInput, match="entry_id"):
        check_entry_id(entry)


def test_a_token_is_40_hex_digits_of_a_key_a_project_and_a_stream() -> None:
    token = queue_token("wfsk_a", "orders", "created")
    assert re.fullmatch(r"[0-9a-f]{40}", token)
    assert token == queue_token("wfsk_a", "orders", "created")
    others = [("wfsk_b", "orders", "created"), ("wfsk_a", "order", "screated"), ("wfsk_a", "orders", "x")]
    assert token not in {queue_token(*other) for other in others}


def test_a_token_fits_any_of_the_keys_that_are_held() -> None:
    old, new = queue_token("old", "p", "s"), queue_token("new", "p", "s")
    assert token_fits(old, ["new", "old"], "p", "s")
    assert token_fits(new, ["new", "old"], "p", "s")
    assert not token_fits(old, ["new"], "p", "s")
    for wrong in ("", new[:-1], new + "0", new.upper(), "ä", "\ud800", "\0"):
        assert not token_fits(wrong, ["new"], "p", "s")
    assert not token_fits(new, [], "p", "s")


def test_the_url_of_a_sink() -> None:
    url = "https://api.example.com/api/internal/workflows/queue/acme/orders/ab"
    assert sink_url("https://api.example.com", "acme", "orders", "ab") == url
    assert sink_url("https://api.example.com/", "acme", "orders", "ab") == url


def test_a_token_is_compared_in_constant_time_with_every_key(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(given: bytes, held: bytes) -> bool:
        compared.append((given, held))
        return hmac.compare_digest(given, held)

    monkeypatch.setattr(queue_tokens, "hmac", SimpleNamespace(compare_digest=compare, new=hmac.new))
    keys = ("current", "previous")
    tokens = [queue_token(key, "orders", "payments") for key in keys]
    for token, fits in ((tokens[0], True), (tokens[1], True), ("0" * 40, False), ("", False)):
        compared.clear()
        assert token_fits(token, keys, "orders", "payments") is fits
        # What fits does not end the search: whether it was the first key that did is nobody's to measure.
        assert compared == [(token.encode(), held.encode()) for held in tokens]


@pytest.mark.parametrize(
    ("listens", "url"),
    [
        (Address("127.0.0.1", 8080), "http://127.0.0.1:8080"),
        (Address("0.0.0.0", 8080), "http://127.0.0.1:8080"),
        (Address("::", 80), "http://[::1]:80"),
        (Address("gateway.internal", 8080), "http://gateway.internal:8080"),
    ],
)
def test_the_url_of_a_gateway_is_where_it_listens(listens: Address, url: str) -> None:
    assert own_url(listens) == url
    assert sink_url("", "acme", "orders", "ab") == "/api/internal/workflows/queue/acme/orders/ab"
