"""Answers of functions that are wrong: what fails a step, what is forgiven, and that no bytes end in anything else."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.domain.function_answer import parse_answer
from services.core.domain.op import BadStep, FunctionFault, OpError, RunCompleted, RunFailed, StepCompleted, StepFailed
from tests.support.function_answers import LIMITS, answer, bad_step, fault, read

FIELDS = (
    *("id", "name", "duration_ms", "input", "max_attempts", "output", "error", "non_retriable", "retry_after"),
    *("duration", "until", "event", "match", "if", "timeout", "lookback", "workflow", "data", "events"),
)


class TestAuthorFaults:
    @pytest.mark.parametrize(
        ("op", "named"),
        [
            ({"op": "sleep", "duration": "5 parsecs"}, ["duration", "5 parsecs", "1h30m"]),
            ({"op": "sleep", "duration": True}, ["duration", "true"]),
            ({"op": "sleep", "duration": -1}, ["duration", "-1"]),
            ({"op": "sleep", "until": "tomorrow"}, ["until", "tomorrow", "ISO-8601"]),
            ({"op": "sleep"}, ["duration", "until", "none"]),
            ({"op": "sleep", "duration": 1, "until": "2026-10-10T10:00:00Z"}, ["duration", "until", "both"]),
            ({"op": "wait_for_event", "event": "no blanks"}, ["event", "no blanks", "letters"]),
            ({"op": "wait_for_event", "event": "runr/cron"}, ["event", "runr/cron"]),
            ({"op": "wait_for_event"}, ["event", "missing"]),
            ({"op": "wait_for_event", "event": "a", "if": "async.data.a =="}, ["if", "async.data.a =="]),
            ({"op": "wait_for_event", "event": "a", "if": 5}, ["if", "5"]),
            ({"op": "wait_for_event", "event": "a", "match": "data..a"}, ["match", "data..a"]),
            ({"op": "wait_for_event", "event": "a", "timeout": 0}, ["timeout", "0", "longer than zero"]),
            ({"op": "wait_for_event", "event": "a", "timeout": "1y"}, ["timeout", "1y"]),
            ({"op": "wait_for_event", "event": "a", "lookback": "ever"}, ["lookback", "ever"]),
            ({"op": "invoke", "workflow": "no blanks"}, ["workflow", "no blanks", "letters"]),
            ({"op": "invoke", "workflow": "sync"}, ["workflow", "sync"]),
            ({"op": "invoke"}, ["workflow", "missing"]),
            ({"op": "invoke", "workflow": "w", "data": []}, ["data", "[]", "object"]),
            ({"op": "invoke", "workflow": "w", "timeout": "0s"}, ["timeout", "0s"]),
            ({"op": "send_event"}, ["events", "missing"]),
            ({"op": "send_event", "events": {"name": "a"}}, ["events", "list"]),
            ({"op": "send_event", "events": []}, ["events", "0", "1 to 100"]),
            ({"op": "send_event", "events": [{"name": "a"}] * 101}, ["events", "101", "1 to 100"]),
            ({"op": "send_event", "events": [{"name": "a"}, "b"]}, ["events[1]"]),
            ({"op": "send_event", "events": [{"name": "a"}, {"name": "runr/x"}]}, ["events[1].name", "runr/"]),
            ({"op": "send_event", "events": [{"name": "a", "data": 5}]}, ["events[0].data"]),
            ({"op": "send_event", "events": [{"name": "a", "id": ""}]}, ["events[0].id"]),
            ({"op": "send_event", "events": [{"name": "a", "ts": "now"}]}, ["events[0].ts"]),
            ({"op": "send_event", "events": [{"name": "a", "ts": -1}]}, ["events[0].ts"]),
        ],
    )
    def test_a_bad_field_fails_the_step_and_names_it(self, op: dict[str, Any], named: list[str]) -> None:
        parsed = bad_step(op)
        assert parsed.error.name == "InvalidStep"
        for each in named:
            assert each in parsed.error.message
        assert parsed.kind == {"step_completed": "run"}.get(op["op"], op["op"])

    def test_an_output_over_the_limit_names_limit_and_size(self) -> None:
        fits = json.dumps("x" * (LIMITS.output_bytes - 2))
        assert isinstance(read(f'{{"op":"step_completed","id":"s","output":{fits}}}'), StepCompleted)
        parsed = bad_step({"op": "step_completed", "output": "x" * (LIMITS.output_bytes - 1)})
        assert parsed.error.name == "TooLarge"
        assert str(LIMITS.output_bytes) in parsed.error.message
        assert str(LIMITS.output_bytes + 1) in parsed.error.message
        assert parsed.kind == "run"

    def test_the_limit_counts_bytes_not_characters(self) -> None:
        text = '{"op":"step_completed","id":"s","output":"' + "é" * (LIMITS.output_bytes // 2) + '"}'
        assert isinstance(read(text), BadStep)

    def test_a_run_output_over_the_limit_fails_the_run(self) -> None:
        parsed = read({"op": "run_completed", "output": "x" * LIMITS.output_bytes})
        assert isinstance(parsed, RunFailed)
        assert parsed.error.name == "TooLarge"
        assert parsed.non_retriable

    @pytest.mark.parametrize("counter", ["", ":1", ":1:12"])
    def test_the_limit_of_an_id_is_for_what_stands_before_its_counter(self, counter: str) -> None:
        op = {"op": "step_completed", "id": "é" * 100 + counter}
        assert isinstance(read(op), StepCompleted)
        parsed = read({**op, "id": "x" + op["id"]})
        assert isinstance(parsed, BadStep)
        assert (parsed.id, parsed.error.name) == ("x" + op["id"], "TooLarge")
        assert "201 bytes before its counter, 200 are allowed" in parsed.error.message

    def test_big_data_of_invokes_and_events(self) -> None:
        big = {"x": "x" * LIMITS.output_bytes}
        assert bad_step({"op": "invoke", "workflow": "w", "data": big}).error.name == "TooLarge"
        event = {"name": "a", "data": {"x": "x" * LIMITS.event_bytes}}
        assert bad_step({"op": "send_event", "events": [event]}).error.name == "TooLarge"

    def test_data_nested_too_deep(self) -> None:
        for levels, kind in ((128, StepCompleted), (129, BadStep)):
            text = '{"op":"step_completed","id":"s","output":' + "[" * levels + "]" * levels + "}"
            assert isinstance(read(text), kind)


class TestWhatIsForgiven:
    @pytest.mark.parametrize("given", ["soon", True, -5, "", [], {"in": 5}, "2026-13-45T00:00:00Z", 1e18])
    def test_a_bad_retry_after_is_a_warning(self, given: Any) -> None:
        for op in ({"op": "step_failed", "id": "s"}, {"op": "run_failed"}):
            parsed = read({**op, "error": "e", "retry_after": given})
            assert isinstance(parsed, StepFailed | RunFailed)
            assert (parsed.retry_after_ms, parsed.retry_at_ms) == (None, None)
            assert parsed.warning is not None
            assert "retry_after" in parsed.warning

    @pytest.mark.parametrize("given", [0, -1, 22, 1.5, "3", True])
    def test_a_bad_max_attempts_is_a_warning(self, given: Any) -> None:
        parsed = read({"op": "step_failed", "id": "s", "error": "e", "max_attempts": given})
        assert isinstance(parsed, StepFailed)
        assert parsed.max_attempts is None
        assert parsed.warning is not None
        assert "max_attempts" in parsed.warning

    @pytest.mark.parametrize(
        ("given", "kept"), [(12, 12), (12.6, 13), (0, 0), (-1, None), ("12", None), (True, None), (1e300, None)]
    )
    def test_a_bad_duration_ms_is_dropped(self, given: Any, kept: int | None) -> None:
        parsed = read({"op": "step_completed", "id": "s", "duration_ms": given})
        assert isinstance(parsed, StepCompleted)
        assert parsed.duration_ms == kept

    def test_a_long_input_is_dropped(self) -> None:
        for length, kept in ((32 * 1024 - 2, True), (32 * 1024 - 1, False)):
            parsed = read({"op": "step_completed", "id": "s", "input": "x" * length})
            assert isinstance(parsed, StepCompleted)
            assert (parsed.input is not None) == kept

    def test_errors_are_cut_on_whole_characters(self) -> None:
        error = {"name": "é" * 200, "message": "€" * 8192, "stack": "😀" * 32768}
        parsed = read({"op": "run_failed", "error": error})
        assert isinstance(parsed, RunFailed)
        assert parsed.error == OpError("é" * 100, "€" * 2730, "😀" * 8192)

    def test_what_postgres_cannot_hold_is_replaced(self) -> None:
        op = '{"op":"step_failed","id":"s","name":"a\\u0000","error":{"name":"\\ud800","message":"x\\u0000\\udfffy"}}'
        parsed = read(op)
        assert isinstance(parsed, StepFailed)
        assert parsed.name == "a\ufffd"
        assert parsed.error == OpError("\ufffd", "x\ufffd\ufffdy")

    def test_the_message_about_a_bad_field_can_be_stored(self) -> None:
        parsed = read('{"op":"sleep","id":"s","duration":"\\ud800\\u0000"}')
        assert isinstance(parsed, BadStep)
        parsed.error.message.encode()
        assert "\0" not in parsed.error.message


class TestProtocolErrors:
    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"garbage",
            b"<!doctype html><html><body>Welcome</body></html>",
            b"null",
            b"[]",
            b'"v1"',
            b"\xff\xfe{}",
            b"\xef\xbb\xbf" + answer('{"op":"run_completed"}'),
            b"{}",
            b'{"ops":[{"op":"run_completed"}]}',
            b'{"runr_workflow":"v2","ops":[{"op":"run_completed"}]}',
            b'{"runr_workflow":1,"ops":[{"op":"run_completed"}]}',
            b'{"runr_workflow":null,"ops":[{"op":"run_completed"}]}',
            b'{"runr_workflow":"v1"}',
            b'{"runr_workflow":"v1","ops":null}',
            b'{"runr_workflow":"v1","ops":{"op":"run_completed"}}',
            b'{"runr_workflow":"v1","ops":["run_completed"]}',
            answer(),
            answer('{"op":"run_completed"}', '{"op":"run_completed"}'),
            answer("{}"),
            answer('{"op":"run_paused"}'),
            answer('{"op":null}'),
            answer('{"op":["sleep"]}'),
            answer('{"op":"would_run","id":"a","name":"a","kind":"run"}'),
            answer('{"op":"step_completed"}'),
            answer('{"op":"step_completed","id":""}'),
            answer('{"op":"step_completed","id":5}'),
            answer('{"op":"step_completed","id":"a\\u0000"}'),
            answer('{"op":"step_completed","id":"\\ud800"}'),
            answer('{"op":"step_completed","id":"' + "x" * 256 + '"}'),
            answer('{"op":"step_failed","id":"a"}'),
            answer('{"op":"step_failed","id":"a","error":5}'),
            answer('{"op":"run_failed","error":null}'),
            answer('{"op":"run_failed","error":"e","non_retriable":"yes"}'),
            answer('{"op":"run_completed","output":NaN}'),
            answer('{"op":"run_completed","output":-Infinity}'),
            answer('{"op":"run_completed","output":1e400}'),
            answer('{"op":"run_completed","output":' + "1" * 5000 + "}"),
            answer('{"op":"run_completed","output":01}'),
            answer("{\"op\":'run_completed'}"),
            answer('{"op":"run_completed","op":"run_failed"}'),
            answer('{"op":"run_completed","output":{"a":1,"a":2}}'),
            answer('{"op":"run_completed","output":"\x01"}'),
            answer('{"op":"run_completed","output":' + "[" * 200_000 + "]" * 200_000 + "}"),
            answer('{"op":"run_completed","output":' + '{"a":' * 200_000),
            answer('{"op":"run_completed"}') + b"x",
            answer('{"op":"run_completed"}')[:-1],
        ],
    )
    def test_an_answer_that_is_not_the_protocol(self, body: bytes) -> None:
        raised = fault(body)
        assert raised.name == "ProtocolError"
        assert raised.message

    def test_the_message_says_what_was_found(self) -> None:
        assert "v2" in fault(b'{"runr_workflow":"v2","ops":[]}').message
        assert "2 ops" in fault(answer('{"op":"run_completed"}', '{"op":"run_completed"}')).message
        assert "run_paused" in fault(answer('{"op":"run_paused"}')).message
        assert "ops[0]" in fault(answer('{"op":"run_completed","output":{"a":1,"a":2}}')).message

    @given(st.binary(max_size=200))
    def test_no_bytes_raise_anything_else(self, body: bytes) -> None:
        assert fault(body).name == "ProtocolError"

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(["runr_workflow", "ops", "statusCode", "body", "error", "events", "name"]), inner
                )
            ),
            max_leaves=8,
        ),
        st.sampled_from(
            ["step_completed", "step_failed", "sleep", "wait_for_event", "invoke", "send_event", "run_failed"]
        ),
        st.sampled_from(FIELDS),
    )
    def test_any_value_in_any_field_is_an_op_or_a_fault(self, value: Any, op: str, field: str) -> None:
        text = json.dumps({"op": op, "id": "s", "error": "e", field: value})
        with suppress(FunctionFault):
            assert not isinstance(read(text), RunCompleted)
        with pytest.raises(FunctionFault):
            parse_answer(200, json.dumps(value).encode(), limits=LIMITS)
